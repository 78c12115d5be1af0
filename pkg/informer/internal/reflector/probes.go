package reflector

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
)

// rightsFor is the time after which it is asked again whether the objects in all namespaces may be
// listed.
const rightsFor = 10 * time.Minute

// maxDeferred is how long a probe waits for other requests, in multiples of the interval of probes.
const maxDeferred = 4

// Probes are the probes of one API server. All watches of a resource share them, whatever their
// namespaces, selectors and formats: with 200 watches the API server still receives one request per
// round. If a client may not list the objects in all namespaces, it is one for each namespace. It
// is safe for concurrent use.
type Probes struct {
	mu     sync.Mutex
	shared map[schema.GroupVersionResource]*shared
}

// shared are the probes of a resource. The lock of the Probes guards it.
type shared struct {
	wide    scope // of all objects
	watches map[*prober]bool
	rounds  map[scope]*rounds
	// several: the watches have different scopes of their own. given: one of them has wide, so the
	// client has the right for it. allowed: the API server said so when it was asked last.
	several, given, allowed bool
	asked                   time.Time
	refused                 time.Time // the time of the last refusal of wide, in spite of that
}

// scope has the objects that a probe lists. Selectors would make the API server read all objects
// for one that they select; a name does not, and a client may have rights for single names only.
type scope struct {
	path          string
	fieldSelector string // of a name; empty: none
}

// rounds are the probes of one scope. A round probes once for all watches that are open.
type rounds struct {
	turn chan struct{} // held during a round; guards sent
	sent time.Time     // the time of the last probe, or of the first opening of a watch
	// the last round, guarded by the lock of the Probes
	begun  time.Time
	answer answer
	err    error
}

// answer is the answer to a probe.
type answer struct {
	scope   scope
	known   bool   // the cluster is known; also if the API server does not answer the rest
	cluster string // see [client.IdentityCache.Identity]
	version string
	objects int // in the scope, at that version; -1: unknown
}

// NewProbes returns the probes of an API server, without watches.
func NewProbes() *Probes { return &Probes{shared: make(map[schema.GroupVersionResource]*shared)} }

// join adds a watch to the rounds of its resource, until leave is called.
func (s *Probes) join(p *prober) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	gvr := p.cfg.Target.GVR
	if s.shared[gvr] == nil {
		s.shared[gvr] = &shared{wide: scope{path: client.ResourcePath(gvr, "")}, watches: make(map[*prober]bool), rounds: make(map[scope]*rounds)}
	}
	all := s.shared[gvr]
	all.watches[p] = true
	all.compare()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(all.watches, p)
		all.compare()
		if len(all.watches) == 0 {
			delete(s.shared, gvr)
		}
	}
}

// compare compares the scopes of the watches.
func (s *shared) compare() {
	own := make(map[scope]bool)
	for p := range s.watches {
		own[ownScope(p.cfg.Target)] = true
	}
	s.several, s.given = len(own) > 1, own[s.wide]
}

// ownScope returns the scope whose probe needs no other rights than the watch itself.
func ownScope(t *Target) scope {
	if strings.Contains(t.FieldSelector, "metadata.name=") {
		return scope{t.Path(), t.FieldSelector}
	}
	return scope{path: t.Path()}
}

// scopeOf returns the scope whose probes serve a watch.
func (s *shared) scopeOf(p *prober) scope {
	if s.several && (s.given || s.allowed) && time.Since(s.refused) > rightsFor {
		return s.wide
	}
	return ownScope(p.cfg.Target)
}

// learn asks the API server whether the client may list all objects, if probes would profit.
func (s *Probes) learn(ctx context.Context, p *prober) {
	s.mu.Lock()
	all := s.shared[p.cfg.Target.GVR]
	asks := all.several && !all.given && time.Since(all.asked) > rightsFor
	if asks {
		all.asked = time.Now()
	}
	s.mu.Unlock()
	if !asks {
		return
	}
	gvr := p.cfg.Target.GVR
	allowed := p.cfg.Client.MayList(ctx, gvr.GroupResource())
	s.mu.Lock()
	defer s.mu.Unlock()
	all.allowed = allowed
}

// roundsOf returns the rounds of a watch, which has joined.
func (s *Probes) roundsOf(p *prober) (scope, *rounds) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.shared[p.cfg.Target.GVR]
	of := all.scopeOf(p)
	if all.rounds[of] == nil {
		all.rounds[of] = &rounds{turn: make(chan struct{}, 1), sent: time.Now()}
	}
	return of, all.rounds[of]
}

// begin returns the watches that the next round serves. due: no round began after since.
func (s *Probes) begin(p *prober, of scope, r *rounds, since time.Time) (watches []*prober, due bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.shared[p.cfg.Target.GVR]
	for member := range all.watches {
		if all.scopeOf(member) == of {
			watches = append(watches, member)
		}
	}
	return watches, !r.begun.After(since)
}

// ask returns the answer to a probe that begins after the call.
func (s *Probes) ask(ctx context.Context, p *prober) (answer, error) {
	r := s.round(ctx, p, time.Now(), true)
	if ctx.Err() != nil {
		return answer{}, context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return r.answer, r.err
}

// round probes once for all watches of the scope of p, unless another round began after since. If
// the API server refuses the scope, it probes that of p alone. It does nothing if no watch is open,
// unless p asks.
func (s *Probes) round(ctx context.Context, p *prober, since time.Time, asks bool) *rounds {
	s.learn(ctx, p)
	for {
		of, r := s.roundsOf(p)
		select {
		case r.turn <- struct{}{}:
		case <-ctx.Done():
			return r
		}
		watches, due := s.begin(p, of, r, since)
		if due {
			s.probe(ctx, p, r, of, watches, asks)
		}
		<-r.turn
		if now, _ := s.roundsOf(p); now == of || ctx.Err() != nil {
			return r
		}
	}
}

// probe probes a scope for watches.
func (s *Probes) probe(ctx context.Context, p *prober, r *rounds, of scope, watches []*prober, asks bool) {
	// The positions are read before the request: its answer is not older than any of them.
	begun := time.Now()
	var views []view
	for _, w := range watches {
		if v, ok := w.look(); ok {
			views = append(views, v)
		}
	}
	if !asks && (len(views) == 0 || !p.cfg.Client.Spare() && time.Since(r.sent) < maxDeferred*p.cfg.ProbeInterval) {
		return
	}
	r.sent = begun
	a, err := p.probe(ctx, of)
	if ctx.Err() != nil {
		return // another watch has to begin it again
	}
	s.mu.Lock()
	r.begun, r.answer, r.err = begun, a, err
	s.mu.Unlock()
	// A refusal may concern the scope of the probe only.
	if apierrors.IsForbidden(err) || client.IsAnswer(err) && !apierrors.IsNotFound(err) {
		views = s.refuse(p, of, views)
	}
	for _, v := range views {
		v.of.judge(v, a, err)
	}
}

// refuse records that the API server refuses a scope. It returns the views of the watches of which
// it is the own one; the others are probed in theirs.
func (s *Probes) refuse(p *prober, of scope, views []view) (final []view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.shared[p.cfg.Target.GVR]
	if of == all.wide {
		all.refused = time.Now()
	}
	for _, v := range views {
		if all.scopeOf(v.of) == of {
			final = append(final, v)
		} else if v.of != p {
			v.of.soon()
		}
	}
	return final
}

// probe requests the identity of the cluster and the resourceVersion of the API server. The list
// has no resourceVersion: it is a quorum read, so that a replica of the API server that lags behind
// is not taken for a restored backup.
func (p *prober) probe(ctx context.Context, of scope) (answer, error) {
	cluster, err := p.cfg.Identity.Identity(ctx, p.cfg.ProbeInterval/10)
	if err != nil {
		return answer{}, &stepError{err, stepIdentity}
	}
	query := url.Values{"limit": {"1"}}
	if of.fieldSelector != "" {
		query.Set("fieldSelector", of.fieldSelector)
	}
	list, err := p.inquiry.listMetadata(ctx, of.path, query)
	if err != nil {
		return answer{known: true, cluster: cluster}, err
	}
	return answer{of, true, cluster, list.ResourceVersion, countOf(&list.ListMeta, len(list.Items))}, nil
}

// countOf returns the number of all objects of which a list has the first ones; -1: unknown.
func countOf(list *metav1.ListMeta, listed int) int {
	if list.Continue == "" {
		return listed
	}
	if list.RemainingItemCount == nil {
		return -1
	}
	return listed + int(*list.RemainingItemCount)
}
