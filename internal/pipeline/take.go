package pipeline

import (
	"fmt"

	"github.com/deltarouter/deltarouter/internal/pipeline/route"
)

// Work is [route.Work].
type Work = route.Work

// Take makes a delta pending in a route that another process has admitted. It waits for nothing.
// Config.Settled is called when the route is done with it. If the pipeline ends before, it is not
// called.
func Take(p *Pipeline, name string, w *Work) error {
	select {
	case <-p.life.stopping:
		return ErrStopped
	default:
	}
	r := p.now.Load().byName(name)
	if r == nil {
		return fmt.Errorf("there is no route %q", name)
	}
	return r.Take(w)
}
