package engine

import (
	"net"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/deltarouter/deltarouter/internal/compile"
	"github.com/deltarouter/deltarouter/pkg/event"
	"github.com/deltarouter/deltarouter/pkg/index"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// view is a handler's access to the caches. A reload replaces its catalog while the handler
// continues.
type view struct{ now atomic.Pointer[index.Catalog] }

var _ plugins.Lookup = (*view)(nil)

// Lookup implements plugins.Lookup.
func (v *view) Lookup(source, index, value string) []*event.Object {
	if c := v.now.Load(); c != nil {
		return c.Lookup(source, index, value)
	}
	return nil
}

// Count implements plugins.Lookup.
func (v *view) Count(source, index, value string) int {
	if c := v.now.Load(); c != nil {
		return c.Count(source, index, value)
	}
	return 0
}

// Get implements plugins.Lookup.
func (v *view) Get(source, namespace, name string) *event.Object {
	if c := v.now.Load(); c != nil {
		return c.Get(source, namespace, name)
	}
	return nil
}

// fillView gives an instance of a handler its granted sources, after the routes were replaced.
func (s *Set) fillView(use handlerUse) {
	sources := compile.SourcesOf(s.Plan.Grants[use.handler])
	if len(sources) == 0 {
		return
	}
	shown := s.handlers[use.instance].view
	s.fill = append(s.fill, func() {
		catalog := index.NewScopedCatalog(use.scope)
		s.fillCatalog(catalog, sources)
		shown.now.Store(catalog)
	})
}

// hostPort returns host:port of a URL; empty if it is none.
func hostPort(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Hostname() == "" {
		return ""
	}
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
