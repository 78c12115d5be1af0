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

// ActiveQuery selects objects for which the condition of a route holds. For a route with ops:
// deleted and for, it selects the deleted objects that are held.
type ActiveQuery struct {
	Route string
	Limit int // objects per answer, 1 to 1000
	// the answer begins behind this object, of which source, namespace and name count; the zero
	// Active: at the beginning
	After Active
}

// Active is one object for which the condition of a route holds.
type Active struct {
	Source    string    `json:"source"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       string    `json:"uid,omitempty"`
	Since     time.Time `json:"since"` // begin of the condition, or of the delete hold
	// pending, entered (reported), skipped (it held before the route started), suppressed (by a
	// limit) or gone (in a delete hold)
	State    string `json:"state"`
	Reported bool   `json:"reported"` // entered was reported, so left will be
	// time of the report, if the state lasts until then
	Due     time.Time `json:"due,omitzero"`
	Remind  time.Time `json:"remind,omitzero"` // time of the next reminder
	Repeats int       `json:"repeats"`         // number of reminders
}

// ActiveAnswer is a page of the objects that an [ActiveQuery] selects, in the order of sources,
// namespaces and names. An object for which the condition holds throughout appears once.
type ActiveAnswer struct {
	Route string   `json:"route"`
	Items []Active `json:"items"`
	// the parameter for the next page; empty on the last page
	Continue string `json:"continue,omitempty"`
}

// token returns the parameter continue for the objects behind a.
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
		return q, errors.New("continue: not a token of an earlier page")
	}
	q.After = Active{Source: parts[0], Namespace: parts[1], Name: parts[2]}
	return q, nil
}

func (c *control) actives(r *http.Request) (any, error) {
	q, err := parseActive(r.PathValue("route"), r.URL.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err)
	}
	items, more, err := c.Active(r.Context(), q)
	answer := ActiveAnswer{Route: q.Route, Items: append([]Active{}, items...)}
	if more {
		answer.Continue = items[len(items)-1].token()
	}
	return answer, err
}

// Active returns one page of the objects for which the condition of a route holds. The token is
// empty for the first page, and the previous page's Continue for each further page.
func (c *Client) Active(ctx context.Context, q ActiveQuery, token string) (answer ActiveAnswer, err error) {
	values := url.Values{"limit": {fmt.Sprint(min(max(q.Limit, 1), maxLimit))}}
	if token != "" {
		values.Set("continue", token)
	}
	return answer, c.call(ctx, http.MethodGet, "/api/v1/routes/"+url.PathEscape(q.Route)+"/active?"+values.Encode(), nil, &answer)
}
