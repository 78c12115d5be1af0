package api

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ActiveQuery asks for which objects the condition of a route holds; of a route ops: deleted with
// for, which are gone and may come back.
type ActiveQuery struct {
	Route string
	Limit int // most objects of the answer, 1 to 1000
	// go on behind this one, of which source, namespace and name count; the zero Active: from the
	// beginning
	After Active
}

// Active is one object for which the condition of a route holds.
type Active struct {
	Source    string    `json:"source"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       string    `json:"uid,omitempty"`
	Since     time.Time `json:"since"` // when it began to hold, or was gone
	// pending, told, skipped (it held before the route looked), suppressed (by a limit) or gone
	State    string `json:"state"`
	Reported bool   `json:"reported"` // entered was told, so that left will be
	// when it is told, if it holds, or is gone, until then
	Due     time.Time `json:"due,omitzero"`
	Remind  time.Time `json:"remind,omitzero"` // when it is told again
	Repeats int       `json:"repeats"`         // how often it was told again
}

// ActiveAnswer is a page of what an [ActiveQuery] asks for, in the order of sources, namespaces and
// names. An object for which the condition holds throughout comes once.
type ActiveAnswer struct {
	Route string   `json:"route"`
	Items []Active `json:"items"`
	// the parameter for the next page; empty: this is the last
	Continue string `json:"continue,omitempty"`
}

// token is the parameter continue for what comes behind a.
func (a *Active) token() string {
	return base64.RawURLEncoding.EncodeToString([]byte(a.Source + "\x00" + a.Namespace + "\x00" + a.Name))
}

// parseActive reads the parameters of a request. The route is part of its path.
func parseActive(route, text string) (q ActiveQuery, err error) {
	q.Route = route
	values, err := parameters(text, "limit", "continue")
	if err != nil {
		return q, err
	}
	if q.Limit, err = limitOf(values); err != nil {
		return q, err
	}
	token := values.Get("continue")
	if token == "" {
		return q, nil
	}
	place, err := base64.RawURLEncoding.Strict().DecodeString(token)
	parts := strings.Split(string(place), "\x00")
	if err != nil || len(parts) != 3 || parts[0] == "" || parts[2] == "" {
		return q, errors.New("continue: this is no token of a page before")
	}
	q.After = Active{Source: parts[0], Namespace: parts[1], Name: parts[2]}
	return q, nil
}

func (c *control) actives(r *http.Request) (any, error) {
	q, err := parseActive(r.PathValue("route"), r.URL.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err)
	}
	items, more, err := c.Active(q)
	answer := ActiveAnswer{Route: q.Route, Items: append([]Active{}, items...)}
	if more {
		answer.Continue = items[len(items)-1].token()
	}
	return answer, err
}

// Active returns one page of the objects for which the condition of a route holds. The next is that
// with token as the page's Continue; the first has none.
func (c *Client) Active(ctx context.Context, q ActiveQuery, token string) (answer ActiveAnswer, err error) {
	values := url.Values{"limit": {fmt.Sprint(min(max(q.Limit, 1), maxLimit))}}
	if token != "" {
		values.Set("continue", token)
	}
	return answer, c.call(ctx, http.MethodGet, "/api/v1/routes/"+url.PathEscape(q.Route)+"/active?"+values.Encode(), nil, &answer)
}
