package inspect

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/test/must"
)

func asUser(t *testing.T, name string) context.Context {
	t.Helper()
	if name == "" {
		return t.Context()
	}
	return access.With(t.Context(), &access.Caller{User: access.User{Name: name}})
}

// TestPlacesOfUsers shows that one user cannot take all places, and that nothing is kept of users
// without requests.
func TestPlacesOfUsers(t *testing.T) {
	p := newPlaces(3, 2)
	var leave []func()
	for _, c := range []struct{ user, want string }{
		{"ann", ""},
		{"ann", ""},
		{"ann", "you have 2 taps already, which is the most of one user: end one of them"},
		{"bob", ""},
		{"bob", "there are 3 taps already: end one of them"},
		{"", "there are 3 taps already: end one of them"},
	} {
		end, err := p.try(asUser(t, c.user), "taps")
		if c.want == "" {
			must.Succeed(t, err)
			leave = append(leave, end)
		} else if err == nil || err.Error() != c.want {
			t.Errorf("%s: %v, want %s", c.user, err, c.want)
		}
	}
	for _, end := range leave {
		end()
	}
	if len(p.all) != 0 || len(p.of) != 0 {
		t.Errorf("%d places and %d users are left", len(p.all), len(p.of))
	}
	for range 3 { // without access control
		_, err := p.try(t.Context(), "taps")
		must.Succeed(t, err)
	}
}

// TestQueriesOfUsers shows that the waiting queries of one user do not delay that of another.
func TestQueriesOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlaces(2, 1)
		ctx, cancel := context.WithCancel(asUser(t, "ann"))
		first, err := p.enter(ctx)
		must.Succeed(t, err)
		for range 5 {
			go func() {
				if _, err := p.enter(ctx); err == nil {
					t.Error("a second query of ann runs")
				}
			}()
		}
		synctest.Wait()
		other, err := p.enter(asUser(t, "bob"))
		must.Succeed(t, err)
		cancel()
		synctest.Wait()
		first()
		other()
		if len(p.all) != 0 || len(p.of) != 0 {
			t.Errorf("%d places and %d users are left", len(p.all), len(p.of))
		}
	})
}
