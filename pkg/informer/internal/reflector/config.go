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

// Config is what a [Reflector] needs.
type Config struct {
	Name     string // of the watch, in logs
	Log      *slog.Logger
	Client   *client.Client
	Identity *client.IdentityCache
	Target   *Target
	State    *persist.State
	Health   *Health
	Plan     *Plan
	Relists  *Relists
	Sink     Sink

	PageSize      int64 // 0: client-go decides how it lists
	Backoff       backoff.Policy
	ProbeInterval time.Duration // between two probes of the API server, at most
	Silence       time.Duration // after which a watch over HTTP/1.1 is opened anew
	BookmarkWait  time.Duration // how long a stream of initial events may be silent
}

// Sink takes what a [Reflector] finds. Its methods are called by one goroutine at a time, but for
// Known, Reduced and LeftOut, which are safe for concurrent use.
type Sink interface {
	// Store returns what client-go's Reflector writes to. Once ctx is done nothing is applied any
	// more.
	Store(ctx context.Context) cache.ReflectorStore
	// Known returns the object that is in memory already, if o is the same.
	Known(o *event.Object) *event.Object
	// Reduced is told of an object of which only identity and labels are passed on, LeftOut of one
	// that could not be read.
	Reduced(e *wire.ObjectError)
	LeftOut(e *wire.ObjectError)
	// Vanish applies that the resource itself does not exist: nothing of it does.
	Vanish(ctx context.Context)
	// Remove applies that all objects are gone but those of these uids. The error is that of ctx.
	Remove(ctx context.Context, except map[string]bool) error
}
