package reflector

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/client-go/tools/cache"

	"github.com/deltarouter/deltarouter/internal/backoff"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/client"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/persist"
	"github.com/deltarouter/deltarouter/pkg/informer/internal/wire"
)

// Config has the dependencies of a [Reflector].
type Config struct {
	Name     string // of the watch, in logs
	Log      *slog.Logger
	Client   *client.Client
	Identity *client.IdentityCache
	Probes   *Probes
	Absences *client.Absences
	Target   *Target
	State    *persist.State
	Health   *Health
	Plan     *Plan
	Relists  *Relists
	Sink     Sink
	Late     *Late // nil: the watch keeps the objects in all namespaces

	PageSize      int64 // 0: client-go decides
	Backoff       backoff.Policy
	ProbeInterval time.Duration // the longest time between two probes of the API server
	Silence       time.Duration // after which a watch over HTTP/1.1 is reopened
	BookmarkWait  time.Duration // the longest silence of a stream of initial events
	HeaderTimeout time.Duration // the longest time until the answer of a list or a watch begins
	Unproven      time.Duration // after which a list replaces an open watch, see [Health.Unproven]
}

// Sink receives the results of a [Reflector]. Its methods are called by one goroutine at a time,
// except for Known, Reduced and LeftOut, which are safe for concurrent use.
type Sink interface {
	// Store returns the store for client-go's Reflector. Once ctx is done nothing is applied.
	Store(ctx context.Context) cache.ReflectorStore
	// Known returns the equal object that is in memory already, if there is one.
	Known(o *event.Object) *event.Object
	// Reduced reports an object that is passed on as its identity and labels only, LeftOut an
	// object that could not be read.
	Reduced(e *wire.ObjectError)
	LeftOut(e *wire.ObjectError)
	// Vanish applies that the resource itself does not exist, so that all its objects are gone.
	Vanish(ctx context.Context)
	// Remove applies that all objects are gone except those with the given uids. It returns the
	// error of ctx.
	Remove(ctx context.Context, except map[string]bool) error
}
