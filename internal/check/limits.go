package check

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// limited is a kind of sink whose receiver bounds the size of an event.
type limited interface {
	// MaxEvent returns the largest event in bytes that the receiver takes (0: it states none), and
	// the setting to raise. It sends no event.
	MaxEvent(ctx context.Context, node config.Node) (bytes int64, setting string, err error)
}

// maxObject is the size to which the API server limits a request, and so an object, with its
// defaults: https://etcd.io/docs/v3.5/dev-guide/limit/
const maxObject = 3 << 19

// tooSmall warns of sinks whose receivers refuse the updates of large objects: without emit and
// handler, the event of an update has two states of the object.
func tooSmall(ctx context.Context, cfg *config.Config, kinds []plugins.SinkKind) config.Problems {
	whole := map[string][]string{}
	for _, r := range cfg.Routes {
		for i := range r.To {
			if name := r.To[i].Sink; name != "" && r.Emit == nil && r.Handler == "" {
				whole[name] = append(whole[name], r.Name)
			}
		}
	}
	names := slices.Sorted(maps.Keys(whole))
	found := make(config.Problems, len(names))
	var wait sync.WaitGroup
	for i, name := range names {
		c := cfg.Sinks[name]
		kind, ok := compile.KindOf(kinds, c.Kind).(limited)
		if !ok {
			continue
		}
		wait.Go(func() {
			most, setting, err := kind.MaxEvent(ctx, c.Config)
			if err != nil || most == 0 || most >= 2*maxObject { // the probe reports the error
				return
			}
			found[i] = c.Node.Problemf("it takes events of at most %d bytes, and an update in route %s, without emit, has two states of an object: "+
				"larger ones become dead letters. Write an emit with the fields that the receiver needs, or raise %s",
				most, strings.Join(whole[name], ", "), setting)
			found[i].Warning = true
		})
	}
	wait.Wait()
	return slices.DeleteFunc(found, func(p config.Problem) bool { return p.Message == "" })
}
