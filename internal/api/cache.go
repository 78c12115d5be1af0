package api

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// SourceInfo describes a source and its cache.
type SourceInfo struct {
	Name       string   `json:"name"`
	Resource   string   `json:"resource"`             // [group/]version/resource
	Namespaces []string `json:"namespaces,omitempty"` // empty: all
	// instead of Namespaces: the labels of the namespaces, and their present number
	NamespaceSelector string `json:"namespaceSelector,omitempty"`
	Selected          *int   `json:"selectedNamespaces,omitempty"`
	// the cached part of objects: full, auto, metadata or identity
	Cache   string   `json:"cache"`
	Kept    []string `json:"kept,omitempty"` // the only cached fields beside names and versions (cache: auto); absent: all
	Indexes []string `json:"indexes"`        // indexes that queries may use, see [Query].Index
	Objects int      `json:"objects"`
	// the caller may not list all objects, so Objects and Reason are not shown
	Hidden bool   `json:"hidden,omitempty"`
	Synced bool   `json:"synced"`
	Reason string `json:"reason,omitempty"` // reason for not being synced
}

// Query selects objects of a source. Empty fields select all.
type Query struct {
	Source    string
	Index     string // select the objects that this index has under Value
	Value     string
	Namespace string
	Name      string
	Labels    string // a label selector, as in app=web,tier!=db
	// Filter is a CEL expression as in a route's filter, with op "sync" and no oldObject. It sees
	// the objects as the answer shows them.
	Filter string
	Limit  int       // objects per answer, 1 to 1000
	After  event.Key // the answer begins behind this object; the zero Key: at the beginning
}

// Answer is a page of the objects that a [Query] selects, in the order of their namespaces and
// names.
type Answer struct {
	Source   string `json:"source"`
	Resource string `json:"resource"`
	// ResourceVersion is the version of the cache at the time of the query. A source with several
	// namespaces has one watch for each; then it is the oldest of their versions. Each page has a
	// version of its own: an object that exists throughout appears once, in the state of its page's
	// version.
	ResourceVersion string `json:"resourceVersion"`
	Synced          bool   `json:"synced"`
	Reason          string `json:"reason,omitempty"` // reason for not being synced
	// the only fields that the cache keeps beside names and versions (cache: auto); absent: all
	Kept  []string          `json:"kept,omitempty"`
	Items []json.RawMessage `json:"items"`
	// number of objects without a field that the filter needs; they do not match
	Absent int `json:"absent,omitempty"`
	// Continue is the parameter for the next page; it is empty on the last page. A page may have
	// fewer objects than its limit, even none: it also ends when it is too long or took too much
	// work.
	Continue string `json:"continue,omitempty"`
	// Standby says that a standby answers; nil: the leader, or a router without a fleet
	Standby *Mirror `json:"standby,omitempty"`
}

// cache answers the API's queries for objects. It is called from any goroutine.
type cache interface {
	// Sources returns the sources in the order of their names.
	Sources(ctx context.Context) ([]SourceInfo, error)
	// Query returns a page. A *[QueryError] is a mistake in the query.
	Query(ctx context.Context, q Query) (Answer, error)
}

// QueryError describes a mistake in a query.
type QueryError struct {
	Message string
	Unknown bool // the source or index does not exist
}

// Error is the message.
func (e *QueryError) Error() string { return e.Message }

// Token returns the parameter continue for the objects behind this one.
func Token(last event.Key) string {
	return base64.RawURLEncoding.EncodeToString([]byte(last.Namespace + "/" + last.Name))
}

func parseToken(token string) (last event.Key, err error) {
	text, err := base64.RawURLEncoding.Strict().DecodeString(token)
	namespace, name, ok := strings.Cut(string(text), "/")
	if err != nil || !ok || name == "" || strings.Contains(name, "/") {
		return event.Key{}, errors.New("continue: not a token of an earlier page")
	}
	return event.Key{Namespace: namespace, Name: name}, nil
}

// parseQuery reads the parameters of a request. The source and index are part of its path.
func parseQuery(source, index, text string) (q Query, watch bool, err error) {
	q = Query{Source: source, Index: index}
	known := []string{"namespace", "name", "labels", "filter", "limit", "continue", "watch"}
	if index != "" {
		known = append(known, "value")
	}
	values, err := parameters(text, known...)
	if err != nil {
		return q, false, err
	}
	if index != "" && !values.Has("value") {
		return q, false, errors.New("value is missing: write ?value=…")
	}
	q.Value, q.Namespace, q.Name = values.Get("value"), values.Get("namespace"), values.Get("name")
	q.Labels, q.Filter = values.Get("labels"), values.Get("filter")
	if values.Has("watch") {
		if watch, err = strconv.ParseBool(values.Get("watch")); err != nil {
			return q, false, fmt.Errorf("watch: %q is neither true nor false", values.Get("watch"))
		}
	}
	if watch && (values.Has("limit") || values.Has("continue")) {
		return q, false, errors.New("watch=true has no pages: leave limit and continue out")
	}
	if q.Limit, err = limitOf(values); err != nil {
		return q, false, err
	}
	if token := values.Get("continue"); token != "" {
		q.After, err = parseToken(token)
	}
	return q, watch, err
}

func (c *control) sources(r *http.Request) (any, error) {
	if r.URL.RawQuery != "" {
		return nil, refuse(http.StatusBadRequest, errors.New("takes no parameters"))
	}
	sources, err := c.Cache.Sources(r.Context())
	return sourceList{append([]SourceInfo{}, sources...), c.mirror()}, err
}

// sourceList is the list of sources in an answer.
type sourceList struct {
	Sources []SourceInfo `json:"sources"`
	Standby *Mirror      `json:"standby,omitempty"`
}

// objects answers with a page of objects, or with a stream of objects and their changes.
func (c *control) objects(w http.ResponseWriter, r *http.Request) {
	q, watch, err := parseQuery(r.PathValue("source"), r.PathValue("index"), r.URL.RawQuery)
	switch {
	case err != nil:
		fail(w, http.StatusBadRequest, err)
	case watch && c.Standby != nil:
		c.refuseAsStandby(w, r)
	case watch:
		c.stream(w, r, func(ctx context.Context, out *stream) error { return c.watch(ctx, q, out) })
	default:
		conclude(w, r, func(r *http.Request) (any, error) {
			answer, err := c.Cache.Query(r.Context(), q)
			answer.Items, answer.Standby = append([]json.RawMessage{}, answer.Items...), c.mirror()
			return answer, err
		})
	}
}

// Sources returns the sources of the router.
func (c *Client) Sources(ctx context.Context) ([]SourceInfo, error) {
	var list sourceList
	err := c.call(ctx, http.MethodGet, "/api/v1/sources", nil, &list)
	c.standby.Store(list.Standby)
	return list.Sources, err
}

// Query returns one page of the selected objects. The token is empty for the first page, and the
// previous page's Continue for each further page.
func (c *Client) Query(ctx context.Context, q Query, token string) (answer Answer, err error) {
	path, values := queryPath(q)
	if token != "" {
		values.Set("continue", token)
	}
	values.Set("limit", fmt.Sprint(min(max(q.Limit, 1), maxLimit)))
	err = c.call(ctx, http.MethodGet, path+"?"+values.Encode(), nil, &answer)
	c.standby.Store(answer.Standby)
	return answer, err
}

// queryPath returns the path and the parameters of a query, without those of a page.
func queryPath(q Query) (path string, values url.Values) {
	path, values = "/api/v1/sources/"+url.PathEscape(q.Source), url.Values{}
	if q.Index != "" {
		path += "/indexes/" + url.PathEscape(q.Index)
		values.Set("value", q.Value)
	}
	parameters := map[string]string{"namespace": q.Namespace, "name": q.Name, "labels": q.Labels, "filter": q.Filter}
	for name, value := range parameters {
		if value != "" {
			values.Set(name, value)
		}
	}
	return path, values
}
