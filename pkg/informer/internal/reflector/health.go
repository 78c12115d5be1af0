package reflector

import (
	"cmp"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
)

// client-go's Reflector takes both for a 410, and lists.
var (
	errWentBack = apierrors.NewResourceExpired("the API server has gone back in time")
	errMoved    = apierrors.NewResourceExpired("the API server is another cluster's")
)

// Health is the state of the connection of a watch. It is safe for concurrent use.
type Health struct {
	watch   string // its name in logs
	log     *slog.Logger
	heardAt atomic.Int64 // nanoseconds since 1970; 0: never

	mu      sync.Mutex
	synced  bool
	reason  string
	refused bool
	logged  string // the reason that was logged last
	relist  string // the reason of the next list
}

// NewHealth returns the Health of a watch before its first request. watch is its name in logs.
func NewHealth(watch string, log *slog.Logger) *Health { return &Health{watch: watch, log: log} }

// State reports whether the store has all objects, and why no changes arrive; empty: they do.
// refused: the API server answers, and forbids the resource or does not have it.
func (h *Health) State() (synced bool, reason string, refused bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.synced, h.reason, h.refused
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

// reached records a successful request.
func (h *Health) reached() {
	h.Heard()
	h.mu.Lock()
	recovered := h.reason != ""
	h.reason, h.logged, h.refused = "", "", false
	h.mu.Unlock()
	if recovered {
		h.log.Info("the API server answers", "watch", h.watch)
	}
}

// failing records why no changes arrive at the moment, and logs the reason when it changes.
func (h *Health) failing(err error) {
	reason := strings.TrimSpace(err.Error())
	h.mu.Lock()
	known := h.logged == reason
	h.reason, h.logged = reason, reason
	h.refused = apierrors.IsForbidden(err) || errors.Is(err, client.ErrAbsent) || errors.As(err, new(*client.UnservedError))
	h.mu.Unlock()
	if !known {
		h.log.Warn("cannot list or watch; retrying", "watch", h.watch, "err", reason)
	}
}

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
