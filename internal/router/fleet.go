package router

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/election"
	"github.com/deltarouter/deltarouter/internal/fleet/fence"
	"github.com/deltarouter/deltarouter/internal/fleet/replica"
	"github.com/deltarouter/deltarouter/internal/fleet/roster"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// member is this process as a member of a fleet: a standby, and the leader from an election until
// it is deposed, hands over or stops.
type member struct {
	opts    Options
	log     *slog.Logger
	name    string // of this process among the members and in the Lease
	began   time.Time
	conn    *fleet.Conn
	client  *informer.Client // for the Lease only
	elector *election.Elector
	roster  *roster.Roster
	figures *replica.Figures
	standby atomic.Pointer[standby] // nil: it leads
	starts  *probes                 // until the first standby has its own
}

// fleetOf returns the configuration if it has a fleet; nil: it has none, or has mistakes.
func fleetOf(opts Options) *config.Config {
	cfg, problems := config.Load(opts.Config, opts.Components.Policy)
	if len(problems) > 0 || cfg == nil || cfg.Fleet == nil {
		return nil
	}
	return cfg
}

// runMember runs a router that is in a fleet until ctx is done.
func runMember(ctx context.Context, opts Options, cfg *config.Config) error {
	starts := startProbes(ctx, cfg, opts.env().Metrics, &opts)
	defer func() { _ = starts.close(ctx) }() // it has been closed before, except after an error
	if problems := tryPlan(ctx, opts); len(problems) > 0 {
		return problems
	}
	starts.begin(opening)
	m, err := newMember(ctx, opts, cfg)
	if err != nil {
		return err
	}
	m.starts = starts
	var rosters sync.WaitGroup
	listing, stop := context.WithCancel(context.WithoutCancel(ctx))
	rosters.Go(func() { m.roster.Run(listing) })
	defer func() {
		stop()
		rosters.Wait()
		m.client.Close()
		if err := m.conn.Close(); err != nil {
			opts.Log.Warn("fleet: the connection to NATS did not close in order", "err", err)
		}
	}()
	for first := true; ; first = false {
		t, err := m.standBy(ctx)
		if unopened, ok := errors.AsType[*unopenedError](err); ok && first {
			return unopened.error // as a router without a fleet
		}
		if ctx.Err() != nil && t == nil {
			opts.Log.Info("stopped")
			return nil
		}
		if t != nil {
			err = m.lead(ctx, t)
		}
		if ctx.Err() != nil {
			return err
		}
		if problems, ok := errors.AsType[config.Problems](err); ok {
			return problems // another term would end in the same way
		}
		if err != nil && t != nil { // the elector lets others try first
			m.elector.Fail(err)
		} else if err != nil {
			opts.Log.Error("fleet: this member could not lead; it is a standby again", "err", err)
			// Another member may be able to.
			if timer.Sleep(ctx, cfg.Fleet.Lease) != nil {
				return nil
			}
		}
	}
}

// tryPlan compiles the configuration once, so that a member with mistakes does not start: it could
// not take over.
func tryPlan(ctx context.Context, opts Options) config.Problems {
	var client *informer.Client
	opts.Dependencies.Plans = nil
	_, problems := opts.plan(ctx, inputOf(opts), func(cluster config.Cluster) (_ *informer.Client, err error) {
		client, err = opts.client(cluster)
		return client, err
	})
	if client != nil && client != opts.Dependencies.Client {
		client.Close()
	}
	return problems
}

func newMember(ctx context.Context, opts Options, cfg *config.Config) (*member, error) {
	m := &member{opts: opts, log: opts.Log, name: memberName(), began: time.Now(), figures: &replica.Figures{}}
	var err error
	if m.client, err = informer.NewClient(cfg.Cluster, opts.Components.Policy); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	if m.conn, err = fleet.Connect(ctx, cfg.Fleet, m.name, opts.Log); err != nil {
		m.client.Close()
		return nil, err
	}
	namespace, name := election.Place(cfg.Fleet.Name)
	m.elector = election.New(election.Config{
		URL: m.client.Host(), Client: m.client.HTTP(), Namespace: namespace, Name: name, Holder: m.name, Duration: cfg.Fleet.Lease, Log: opts.Log,
		Ready: m.ready,
	})
	m.roster = roster.New(m.conn, m.name, opts.Log)
	return m, nil
}

// ready reports whether this member may take the Lease, which did not change for some time. It does
// not wait again after a term in which it could not lead, as on servers of NATS that are too old.
func (m *member) ready(quiet time.Duration) bool {
	s := m.standby.Load()
	return s != nil && m.conn.NATS.IsConnected() && (s.follower.Lag().Known || quiet >= election.Patience)
}

// memberName returns a name that no other process has, and that people recognize.
func memberName() string {
	name := os.Getenv("POD_NAME")
	if name == "" {
		if name, _ = os.Hostname(); name == "" {
			name = "router"
		}
	}
	return name + "-" + strings.ToLower(rand.Text()[:5])
}

// openTimeout bounds the attempts to open the stream of frames. Another member may succeed.
const openTimeout = 30 * time.Second

// openCuts opens the stream of frames as its only writer. after is the last term that is known.
// failing gets the reason when no frames can be published.
func (m *member) openCuts(ctx context.Context, after uint64, failing func(error)) (*fence.Publisher, fence.Record, error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	if err := m.conn.Ready(ctx); err != nil {
		return nil, fence.Record{}, err
	}
	if err := m.conn.Ensure(ctx); err != nil {
		return nil, fence.Record{}, err
	}
	note, err := replica.Note(ctx, m.conn)
	if err != nil {
		return nil, fence.Record{}, err
	}
	n := m.conn.Names
	return fence.Open(ctx, fence.Config{
		Conn: m.conn.NATS, Stream: n.Cuts(), Lead: n.CutsLead(), Holder: m.name, Note: note, After: after, Failing: failing, Log: m.log,
		Keys: m.conn.Members, Refused: func(err error) { m.conn.Refuse(fleet.RefusedLead, err) },
	})
}

// lead runs the router until ctx is done or the term ends.
func (m *member) lead(ctx context.Context, t *term) error {
	ctx, t.end = context.WithCancelCause(ctx)
	defer t.end(nil)
	// The start may take long, and the Lease may be lost meanwhile.
	var watch sync.WaitGroup
	watch.Go(func() { t.watch(ctx) })
	begun := time.Now()
	opts := m.opts
	opts.term = t
	var r *router
	first, err := read(ctx, opts)
	if err == nil {
		r, err = begin(ctx, opts, first)
	}
	if err == nil {
		m.roster.Show(func() roster.Member {
			return roster.Member{Role: roster.Leader, Version: opts.Version, Config: r.objects.Load().Config().Hash, Since: begun}
		})
		r.logStart()
		m.elector.Succeed()
		m.log.Info("fleet: this member leads", "member", m.name, "term", t.cuts.Term())
		err = r.run(ctx)
	}
	// It is read before the end, which sets a cause of its own.
	cause := context.Cause(ctx)
	t.end(nil)
	watch.Wait()
	err = errors.Join(err, t.close())
	// The Lease is freed last, so that the next leader begins after the last cut of this one.
	prefer := ""
	if errors.Is(cause, errHandover) {
		prefer = t.lead.AskedBy()
	}
	releasing, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.CloseTimeout)
	defer cancel()
	if failed := t.lead.Release(releasing, prefer); failed != nil {
		m.log.Warn("fleet: the Lease was not freed, and expires", "err", failed)
	}
	// Neither is a failure of this member, so the errors that follow from it are only logged.
	if errors.Is(cause, errDeposed) {
		m.log.Warn("fleet: this member was deposed: it is a standby now", "member", m.name, "err", err)
		return nil
	}
	if errors.Is(cause, errHandover) {
		m.log.Info("fleet: this member has handed over: it is a standby now", "member", m.name, "to", prefer, "err", err)
		return nil
	}
	return err
}

// shown returns the fleet for the status.
func (m *member) shown(role string, lag replica.Lag) *api.FleetStatus {
	s := &api.FleetStatus{Name: m.conn.Names.Fleet(), Member: m.name, Role: role, Leader: m.elector.Leader(), NATS: m.conn.NATS.IsConnected(), Unsigned: m.conn.Members == nil}
	if lag.Known {
		seconds := lag.Time.Seconds()
		s.Checkpoints, s.Behind = lag.Frames, &seconds
	}
	for _, one := range m.roster.All() {
		s.Members = append(s.Members, api.Member{
			Name: one.Name, Role: one.Role, Version: one.Version, Config: one.Config, Since: one.Since, Behind: one.Behind, Partitions: one.Partitions,
		})
	}
	return s
}
