package router

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/internal/engine"
	"github.com/deltarouter/deltarouter/internal/fileerr"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/fleet/election"
	"github.com/deltarouter/deltarouter/internal/fleet/replica"
	"github.com/deltarouter/deltarouter/internal/fleet/roster"
	"github.com/deltarouter/deltarouter/internal/fleet/work"
	"github.com/deltarouter/deltarouter/internal/inspect"
	"github.com/deltarouter/deltarouter/internal/metrics"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// takeoverTimeout bounds the time from an election to the moment at which the state file has all
// that the stream has. A member that fails frees the Lease for another one.
const takeoverTimeout = 2 * time.Minute

// standby is a member that follows the leader: its state file is a copy of the leader's.
type standby struct {
	*member

	cfg      *config.Config
	db       *checkpoint.DB
	follower *replica.Follower
	metrics  *metrics.Metrics
	since    time.Time
	servers  []*api.Server
	elected  bool // the term has the file
	file     *standbyFile
}

// standBy follows the leader until this member is elected, and prepares its term. The term is nil
// with an error, and when ctx is done.
func (m *member) standBy(ctx context.Context) (*term, error) {
	watched := newWatchedFile(m.opts.Config) // before it is read
	cfg := fleetOf(m.opts)
	if cfg == nil {
		return nil, errors.New("the configuration has mistakes, or no fleet any more: restart the router")
	}
	s := &standby{member: m, cfg: cfg, metrics: metrics.New(), since: time.Now()}
	s.file = newStandbyFile(s, watched)
	following, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := s.open(following); err != nil {
		return nil, &unopenedError{errors.Join(err, s.close(ctx))}
	}
	m.log.Info("fleet: this member is a standby", "fleet", cfg.Fleet.Name, "member", m.name, "position", s.db.Position().String())
	m.standby.Store(s)
	var follower sync.WaitGroup
	follower.Go(func() { s.follower.Run(following) })
	follower.Go(func() { s.file.watch(following) })
	t, err := s.await(ctx)
	m.standby.Store(nil)
	// The follower must have ended before the leader writes to the same file.
	stop()
	follower.Wait()
	if t != nil {
		t.db.Store(s.db)
		s.elected = true
	}
	return t, errors.Join(err, s.close(ctx))
}

// unopenedError is the error of a standby that cannot work, such as that of its folder.
type unopenedError struct{ error }

// open opens the state file, the probes and the API.
func (s *standby) open(ctx context.Context) (err error) {
	dir := s.cfg.State.Dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("state.dir: %w", fileerr.Explain(err))
	}
	path := filepath.Join(dir, engine.StateFile)
	if s.db, err = checkpoint.Open(checkpoint.Config{Path: path, MaxSize: int64(s.cfg.State.MaxSize), Log: s.log}); err != nil {
		return fmt.Errorf("state.dir: %w", err)
	}
	s.follower = replica.NewFollower(replica.FollowerConfig{Conn: s.conn, DB: s.db, Path: path, Figures: s.figures, Log: s.log})
	s.metrics.SetBuildInfo(s.opts.Version)
	announceMember(s.metrics, s.member, false)
	s.roster.Show(s.entry)
	return s.serve(ctx)
}

// entry is the entry of the standby among the members.
func (s *standby) entry() roster.Member {
	m := roster.Member{Role: roster.Standby, Version: s.opts.Version, Config: s.file.config().Hash, Since: s.since}
	if lag := s.follower.Lag(); lag.Known {
		seconds := lag.Time.Seconds()
		m.Behind = &seconds
	}
	return m
}

// serve starts the probes and the API, as far as they are configured.
func (s *standby) serve(ctx context.Context) error {
	listen := s.cfg.Listen
	if listen.Probes != "" {
		cfg := api.Config{Addr: listen.Probes, Metrics: s.metrics.Handler(), Checks: s.checks, Role: s.role, Log: s.log}
		if listen.Access != "" {
			cfg.Metrics = nil
		}
		s.servers = append(s.servers, api.New(cfg))
	}
	if listen.API != "" {
		cfg := api.ControlConfig{
			Addr: listen.API, Status: s.status, Checks: s.checks, Metrics: s.metrics.Handler(), Log: s.log,
			Standby: s.refusal, Promote: s.promote, Mirror: s.mirror,
		}
		// The state file answers in place of the caches, which only the leader has.
		saved := inspect.NewSaved(ctx, s.db, s.file.inventory, s.log)
		cfg.Cache, cfg.DeadLetters = saved, inspect.SavedLetters(saved)
		if err := engine.Secure(&cfg, listen, s.client, s.log); err != nil {
			return err
		}
		s.servers = append(s.servers, api.NewControl(cfg))
	}
	_ = s.starts.close(ctx) // they have the address; a request that was cut off is sent again
	for _, server := range s.servers {
		if err := server.Start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// close closes what open opened.
func (s *standby) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.CloseTimeout)
	defer cancel()
	var errs []error
	for _, server := range s.servers {
		errs = append(errs, server.Close(ctx))
	}
	if s.db != nil && !s.elected {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}

// await waits for the election of this member, and then for the last frames of the former leader.
// While the stream cannot be opened, it frees the Lease and tries again.
func (s *standby) await(ctx context.Context) (*term, error) {
	for {
		lead, err := s.elector.Acquire(ctx)
		if err != nil {
			return nil, nil //nolint:nilerr // ctx is done
		}
		begun := time.Now()
		if s.elector.Failure() == nil { // else it was said
			s.log.Info("fleet: this member was elected", "member", s.name)
		}
		t := &term{member: s.member, lead: lead}
		if err = s.takeOver(ctx, t); err == nil {
			s.log.Info("fleet: the state has all that the former leader published", "position", s.db.Position().String(), "took", time.Since(begun))
			return t, nil
		}
		if failed := s.free(ctx, lead); failed != nil || ctx.Err() != nil {
			return nil, errors.Join(err, failed)
		}
		if unopened, ok := errors.AsType[*cutsError](err); ok {
			s.elector.Fail(unopened.error)
			continue
		}
		return nil, err
	}
}

// free frees the Lease.
func (s *standby) free(ctx context.Context, lead *election.Leadership) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), engine.CloseTimeout)
	defer cancel()
	return lead.Release(ctx, "")
}

// cutsError says that the stream of frames could not be opened. The state file is as before.
type cutsError struct{ error }

// takeOver becomes the only writer of the streams, and applies the frames that are there.
func (s *standby) takeOver(ctx context.Context, t *term) (err error) {
	ctx, cancel := context.WithTimeout(ctx, takeoverTimeout)
	defer cancel()
	go func() {
		select {
		case <-t.lead.Lost():
			cancel()
		case <-ctx.Done():
		}
	}()
	if t.cuts, t.before, err = s.openCuts(ctx, s.db.Position().Term, t.health.failing); err != nil {
		return &cutsError{err}
	}
	err = s.follower.CatchUp(ctx)
	if incomplete, ok := errors.AsType[*replica.IncompleteError](err); ok {
		s.log.Warn("fleet: this member begins with an older state", "err", incomplete)
	} else if err != nil {
		return err
	}
	t.outbox = work.NewOutbox(work.OutboxConfig{Conn: s.conn, Holder: s.name, Log: s.log})
	t.shipper = replica.NewShipper(replica.ShipperConfig{Conn: s.conn, Figures: s.figures, Wait: s.cfg.Fleet.Wait, Log: s.log})
	return nil
}

// role returns the role for the first line of /readyz.
func (s *standby) role() string {
	lag := s.follower.Lag()
	if !lag.Known {
		return "standby, waits for a leader"
	}
	return fmt.Sprintf("standby, %.1f s behind", lag.Time.Seconds())
}

// checks returns the checks for /readyz and the status. A standby without any state is not ready.
func (s *standby) checks() []api.Check {
	lag := s.follower.Lag()
	c := api.Check{Name: "fleet", OK: lag.Known && lag.Time < lateLag, Holds: !lag.Known && s.elector.Leader() != "", Message: s.role()}
	if err := s.conn.Trouble(); err != nil {
		c.Message += "; " + err.Error()
	}
	if err := s.elector.Failure(); err != nil {
		c.OK, c.Message = false, c.Message+"; this member could not lead: "+err.Error()
	}
	lease := api.Check{Name: "lease", OK: true}
	if err := s.elector.Err(); err != nil {
		lease.OK, lease.Message = false, err.Error()
	}
	return append([]api.Check{c, lease, s.file.check()}, refusedCheck(s.conn)...)
}

// statusTimeout bounds the time for which a status waits for NATS.
const statusTimeout = time.Second

// status returns the status for the API: the fleet, the backlogs and the dead letters in the state
// file, and the backlogs of the workers. It has no texts about objects.
func (s *standby) status(ctx context.Context) api.Status {
	cfg := s.file.config()
	shown := api.Status{Checks: s.checks(), Fleet: s.shown(roster.Standby, s.follower.Lag())}
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	// A part that cannot be read is left out: the rest may explain the reason.
	letters, err := s.db.Letters(checkpoint.LettersConfig{})
	if err != nil {
		s.log.Warn("fleet: the dead letters of the state file cannot be counted", "err", err)
	}
	// The whole backlog is on disk, because a standby has no queues.
	for _, route := range cfg.Routes {
		backlog, err := s.db.Backlog(route.ID)
		if err != nil {
			continue
		}
		one := api.RouteStatus{Name: route.Name, Pending: backlog.N, OnDisk: backlog.N}
		if letters != nil {
			one.DeadLetters = len(letters.IDs(route.ID, 0, 0))
		}
		if route.Workers != nil {
			one.Workers = &api.WorkersStatus{Partitions: route.Workers.Partitions}
			if n, err := work.Waiting(asking, s.conn, route.ID); err == nil {
				one.Workers.Waiting = &n
			}
		}
		shown.Routes = append(shown.Routes, one)
	}
	return inspect.NewRights(&compile.Plan{Config: cfg}).Show(ctx, shown)
}

// promote asks the leader to hand over, if this member is able to lead.
func (s *standby) promote(ctx context.Context) error {
	if !s.conn.NATS.IsConnected() {
		return errors.New("this standby cannot lead: it does not reach NATS")
	}
	if !s.follower.Lag().Known {
		return errors.New("this standby cannot lead: it does not have the state of the leader yet")
	}
	return s.elector.RequestHandover(ctx)
}

// mirror describes the state file for the answers that are made of it.
func (s *standby) mirror() api.Mirror {
	m := api.Mirror{Leader: s.elector.Leader()}
	if lag := s.follower.Lag(); lag.Known {
		seconds := lag.Time.Seconds()
		m.Behind = &seconds
	}
	return m
}

// refusal is the answer to requests that only the leader can answer.
func (s *standby) refusal() error {
	if leader := s.elector.Leader(); leader != "" {
		return fmt.Errorf("this member is a standby of fleet %q: ask the leader, %s", s.cfg.Fleet.Name, leader)
	}
	return fmt.Errorf("this member is a standby of fleet %q, which has no leader at present", s.cfg.Fleet.Name)
}

// announceMember adds the metrics of a member of a fleet.
func announceMember(m *metrics.Metrics, of *member, leads bool) {
	f := of.figures
	m.SetLeads(leads)
	m.SetRefused(fleet.RefusedKinds(), of.conn.Refused.Count)
	m.SetReplication(metrics.Replication{
		Published: f.Published.Load, Snapshots: f.Snapshots.Load, Installed: f.Installed.Load, Late: f.Late.Load,
		Behind: func() (uint64, time.Duration, bool) {
			lag := f.Lag()
			return lag.Frames, lag.Time, lag.Known
		},
	})
}
