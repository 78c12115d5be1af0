package reflector

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
)

// client-go's Reflector takes them for a 410, and lists.
var (
	errWentBack = apierrors.NewResourceExpired("the API server has gone back in time")
	errMoved    = apierrors.NewResourceExpired("the API server is another cluster's")
	errStalled  = apierrors.NewResourceExpired("the watch is open and brings nothing")
	// errMiscounted is described at [recount].
	errMiscounted = apierrors.NewResourceExpired("the cache has more objects than the API server: deletions were lost, and the objects are listed")
)

// Health is the state of the connection of a watch. It is safe for concurrent use.
type Health struct {
	watch   string // its name in logs
	log     *slog.Logger
	heardAt atomic.Int64 // nanoseconds since 1970; 0: never
	// provedAt is the time of the last proof that no change is missing, in nanoseconds since 1970.
	provedAt atomic.Int64
	held     atomic.Int64 // the changes that wait, see Undecided

	mu       sync.Mutex
	synced   bool
	problems [steps]problem
	relist   string // the reason of the next list
}

// NewHealth returns the Health of a watch before its first request. watch is its name in logs.
func NewHealth(watch string, log *slog.Logger) *Health {
	h := &Health{watch: watch, log: log}
	h.Prove()
	return h
}

// State reports whether the store has all objects, and why no changes arrive; empty: they do.
// refused: the API server answers, and forbids the resource or does not have it.
func (h *Health) State() (synced bool, reason string, refused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, p := range h.problems {
		refused = refused || p.refused
		if reason == "" {
			reason = p.reason
		}
	}
	return h.synced, reason, refused
}

// SetSynced sets whether the store has all objects.
func (h *Health) SetSynced(synced bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.synced = synced
}

// Heard records a sign of life of the API server.
func (h *Health) Heard() { h.heardAt.Store(time.Now().UnixNano()) }

// Silence returns the time since the last sign of life of the API server; 0: there was none.
func (h *Health) Silence() time.Duration {
	at := h.heardAt.Load()
	if at == 0 {
		return 0
	}
	return time.Since(time.Unix(0, at))
}

// Prove records that no change was missing a moment ago: an event or a bookmark came, a list was
// complete, or the API server has nothing newer.
func (h *Health) Prove() { h.provedAt.Store(time.Now().UnixNano()) }

// Unproven returns the time since the last proof that no change is missing, or since the start.
func (h *Health) Unproven() time.Duration { return time.Since(time.Unix(0, h.provedAt.Load())) }

// noteError records the error as the possible reason of the next list.
func (h *Health) noteError(err error) {
	reason := "watch_ended"
	switch {
	case err == nil:
		return
	case errors.Is(err, errWentBack):
		reason = "rewound"
	case errors.Is(err, errMoved):
		reason = "moved"
	case errors.Is(err, errStalled):
		reason = "stalled"
	case errors.Is(err, errMiscounted):
		reason = "miscounted"
	case client.IsExpired(err):
		reason = "expired"
	case client.IsAhead(err):
		reason = "ahead"
	case client.IsDenied(err):
		reason = "denied"
	case client.IsAnswer(err):
		reason = "refused"
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.relist == "" || reason != "watch_ended" { // the end of the watch is less specific
		h.relist = reason
	}
}

// noteAsked records that a user requested the next list.
func (h *Health) noteAsked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.relist = "asked"
}

// TakeRelistReason returns the reason of the current list.
func (h *Health) TakeRelistReason() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	reason := cmp.Or(h.relist, "restarted")
	h.relist = ""
	return reason
}

// step is a step on the way to the changes of a resource. Only its own success removes its problem:
// the other steps may succeed while it fails.
type step int

const (
	// stepDiscovery succeeds when discovery has the resource.
	stepDiscovery step = iota
	// stepIdentity succeeds when the cluster is known to be the same, or another one.
	stepIdentity
	// stepList succeeds when all objects have arrived, in a list or a stream of initial events, or
	// when they are not needed because a watch resumes.
	stepList
	// stepOpen succeeds when the API server begins to answer the request of a watch.
	stepOpen
	// stepStream succeeds when the open watch brings an event or a bookmark, or lasts.
	stepStream
	// stepProbe succeeds when the API server would open the watch again, or does so.
	stepProbe
	// stepQuestion succeeds when the API server says of all objects that left the watch whether
	// they were deleted.
	stepQuestion

	steps
)

// stepError is an error of another step than the one that failed because of it.
type stepError struct {
	error

	step step
}

func (e *stepError) Unwrap() error { return e.error }

// reasonOf returns an error without its step.
func reasonOf(err error) error {
	if other := (*stepError)(nil); errors.As(err, &other) {
		return other.error
	}
	return err
}

// problem is why a step fails; the zero value: it does not.
type problem struct {
	reason  string
	refused bool
	logged  string // the reason that was logged last, without its variable parts
}

// variable matches the parts of a reason that differ in each attempt: times and ports.
var variable = regexp.MustCompile(`\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:\d\d)?|:\d+\b`)

// healthy records the success of steps.
func (h *Health) healthy(succeeded ...step) {
	h.Heard()
	h.mu.Lock()
	before := h.problems != [steps]problem{}
	for _, s := range succeeded {
		h.problems[s] = problem{}
		if s == stepList {
			h.Prove()
		}
	}
	after := h.problems != [steps]problem{}
	h.mu.Unlock()
	if before && !after {
		h.log.Info("the API server answers", "watch", h.watch)
	}
}

// failing records why a step fails, and logs the reason when it changes.
func (h *Health) failing(s step, err error) {
	if reason, logged := h.note(s, err, true); !logged {
		h.log.Warn("cannot list or watch; retrying", "watch", h.watch, "err", reason)
	}
}

// Undecided records that the API server does not say whether objects that left the watch were
// deleted. The changes of first and of the others wait; all is their number.
func (h *Health) Undecided(first event.Key, all int, err error) {
	h.failing(stepQuestion, &undecidedError{err, first, all - 1})
}

// HoldBack counts changes that wait until it is known whether their objects were deleted, or with n
// below 0 no more.
func (h *Health) HoldBack(n int) { h.held.Add(int64(n)) }

// HeldBack returns the number of these changes.
func (h *Health) HeldBack() int { return int(h.held.Load()) }

// Decided records that no object is [Health.Undecided] any more.
func (h *Health) Decided() { h.healthy(stepQuestion) }

// undecidedError says which objects wait for the answer to a question, and why there is none.
type undecidedError struct {
	error

	first  event.Key
	others int
}

// Error returns the reason for the status.
func (e *undecidedError) Error() string {
	others := ""
	if e.others > 0 {
		others = fmt.Sprintf(" and of %d others", e.others)
	}
	return fmt.Sprintf("the changes of %s%s wait, because the API server does not say whether an object that left the selector was deleted: %v",
		e.first, others, e.error)
}

func (e *undecidedError) Unwrap() error { return e.error }

// expected records, without the log, a failure that happens in normal operation: a list follows.
func (h *Health) expected(err error) { h.note(stepList, err, false) }

// note records why a step fails. logged: the reason was logged last. logs: it will be.
func (h *Health) note(s step, err error, logs bool) (reason string, logged bool) {
	if other := (*stepError)(nil); errors.As(err, &other) {
		s = other.step
	}
	reason = strings.TrimSpace(err.Error())
	constant := reason
	if undecided := (*undecidedError)(nil); errors.As(err, &undecided) {
		constant = undecided.error.Error() // the objects differ
	}
	constant = variable.ReplaceAllString(constant, "")
	h.mu.Lock()
	defer h.mu.Unlock()
	p := &h.problems[s]
	p.reason, logged = reason, p.logged == constant
	if logs {
		p.logged = constant
	}
	p.refused = apierrors.IsForbidden(err) || apierrors.IsMethodNotSupported(err) || errors.Is(err, client.ErrAbsent) ||
		errors.As(err, new(*client.UnservedError))
	return reason, logged
}
