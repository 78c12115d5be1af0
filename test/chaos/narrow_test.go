package chaos

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/deltarouter/deltarouter/test/routertest"
)

// The two scopes of the source: all objects, or all but the far ones.
const (
	wide   = ""
	narrow = ", labelSelector: scope!=far"
)

// scopeOf returns the label of an object: most of the group c are far.
func scopeOf(name string) string {
	if strings.HasPrefix(name, "o-c-1") || strings.HasPrefix(name, "o-c-2") {
		return "far"
	}
	return "near"
}

// turnScope narrows the configuration of the router, or widens it again, when all due reports were
// delivered: by a reload, by a reload and a kill, or at a start. It returns the running router,
// when it has delivered and saved what follows. Changes wait meanwhile: a source with another
// selector has another watch, which begins with a list, and that would miss changes.
func (b *ruleBook) turnScope(t *testing.T, r *routertest.Router, file string) *routertest.Router {
	t.Helper()
	b.settleAnd(t, r, func() {
		b.turnHidden()
		how := rand.IntN(3) //nolint:gosec // no secret
		if how < 2 {
			r.Reload(t, file, b.config(), true)
		}
		if how > 0 {
			r.Kill(t)
			b.read(t, r.Events())
			routertest.Exchange(t, file, b.config())
			r = routertest.StartFile(t, file)
		}
		r.Ready(t)
		b.allTold(t, r)
		r.Saved(t)
	})
	return r
}

// turnHidden records that the routes do not see the far objects any more, or again. The times of
// these end then, and begin with their present versions.
func (b *ruleBook) turnHidden() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hidden = !b.hidden
	for name, life := range b.names {
		switch {
		case scopeOf(name) != "far" || life.gone:
		case b.hidden && life.open != nil:
			life.open.unseen, life.open = true, nil
			b.unseen++
		case !b.hidden && life.bad:
			b.begin(life)
		}
	}
}

// config returns the configuration of the present scope.
func (b *ruleBook) config() string {
	scope := wide
	if b.hidden {
		scope = narrow
	}
	return b.head + fmt.Sprintf(rulesRoutes, b.ns, scope)
}
