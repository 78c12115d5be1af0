// Package access decides which requests to the router's API are permitted. The API server is asked
// for both parts of the decision: who sends the request (TokenReview, unless a client certificate
// says it), and which rights the sender has (SubjectAccessReview). The answers are kept for a
// while. Without an answer, nothing is permitted.
package access

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/authz"
)

// Error is the reason why a request is not permitted, with its HTTP status.
type Error struct {
	Status  int
	Message string
	// Denied is the right that the user does not have; the zero value for other reasons
	Denied authz.Right
}

// Error is the message.
func (e *Error) Error() string { return e.Message }

func failf(status int, format string, args ...any) *Error {
	return &Error{Status: status, Message: fmt.Sprintf(format, args...)}
}

// User is a user of the cluster.
type User struct {
	Name   string              `json:"name"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// The bounds of a user in a log line.
const (
	maxName   = 128
	maxGroups = 5
)

// String returns the name and the first groups, for the log.
func (u *User) String() string {
	var b strings.Builder
	b.WriteString(shortened(u.Name))
	for i, group := range u.Groups {
		if i == maxGroups {
			fmt.Fprintf(&b, ", and %d more", len(u.Groups)-maxGroups)
			break
		}
		b.WriteString([]string{" of ", ", "}[min(i, 1)] + shortened(group))
	}
	return b.String()
}

func shortened(text string) string { return printable.Clean(text, maxName) }

// callerKey is the key of a [Caller] in a context.
type callerKey struct{}

// With returns a context of the requests of a caller.
func With(ctx context.Context, c *Caller) context.Context {
	return context.WithValue(ctx, callerKey{}, c)
}

// From returns the caller of a context; nil: everything is permitted, because the API has no access
// control, or because the router itself asks.
func From(ctx context.Context) *Caller {
	c, _ := ctx.Value(callerKey{}).(*Caller)
	return c
}

// Check returns an [Error] unless the caller of the context has all rights.
func Check(ctx context.Context, rights ...authz.Right) error {
	c := From(ctx)
	if c == nil {
		return nil
	}
	return c.check(ctx, rights)
}

// Has reports whether the caller of the context has all rights. The error says that the API server
// gave no answer.
func Has(ctx context.Context, rights ...authz.Right) (bool, error) {
	c := From(ctx)
	if c == nil {
		return true, nil
	}
	for _, right := range rights {
		has, err := c.reviewer.allowed(ctx, c.User, right, false)
		if !has || err != nil {
			return false, err
		}
	}
	return true, nil
}

// Caller is the authenticated sender of a request.
type Caller struct {
	User

	reviewer *Reviewer
	identify func(ctx context.Context, fresh bool) (User, error)

	mu      sync.Mutex
	checked []authz.Right // the rights that the request needs, all granted
}

func (c *Caller) check(ctx context.Context, rights []authz.Right) error {
	for _, right := range rights {
		if err := c.reviewer.permit(ctx, c.User, right, false); err != nil {
			return err
		}
		c.mu.Lock()
		c.checked = append(c.checked, right)
		c.mu.Unlock()
	}
	return nil
}

// permit returns an error unless a user has a right.
func (r *Reviewer) permit(ctx context.Context, user User, right authz.Right, fresh bool) error {
	has, err := r.allowed(ctx, user, right, fresh)
	if err != nil {
		return err
	}
	if !has {
		denied := failf(http.StatusForbidden, "user %q may not %s", shortened(user.Name), right)
		denied.Denied = right
		return denied
	}
	return nil
}

// Again asks the API server again whether the request is permitted, not the cache: whether the
// token or the certificate is still valid, and for each right that was checked. The error is the
// reason why it is not permitted any more.
func (c *Caller) Again(ctx context.Context) error {
	user, err := c.identify(ctx, true)
	if err != nil {
		return err
	}
	if user.Name != c.Name || user.UID != c.UID {
		return failf(http.StatusUnauthorized, "the token belongs to another user now")
	}
	c.mu.Lock()
	rights := slices.Clone(c.checked)
	c.mu.Unlock()
	for _, right := range rights {
		if err := c.reviewer.permit(ctx, user, right, true); err != nil {
			return err
		}
	}
	return nil
}
