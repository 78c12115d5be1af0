package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// HistoryQuery selects the history of the objects with one name in a source.
type HistoryQuery struct {
	Source, Namespace, Name string

	Since, Until time.Time // zero: open
	States       bool      // with the states of the object
	Limit        int       // records per answer, the newest ones, 1 to 1000
}

// HistoryAnswer is a part of the history of an object, in the order of time.
type HistoryAnswer struct {
	Source string `json:"source"`
	// From is the time of the oldest record of the history: of earlier times nothing is known.
	From    time.Time       `json:"from,omitzero"`
	Records []HistoryRecord `json:"records"`
	More    bool            `json:"more,omitempty"` // older records exist in the span, beyond the limit
	HistoryGaps
	// the only fields that the cache keeps, and so the history (cache: auto); absent: all
	Kept []string `json:"kept,omitempty"`
}

// HistoryGaps are reasons for which records may be missing in an answer.
type HistoryGaps struct {
	Lost    int `json:"lost,omitempty"`    // records of the span, of any object, that could not be written
	Damaged int `json:"damaged,omitempty"` // segments that can be read in part only
}

// HistoryRecord is a change of an object, or the decision of a route about one: then Decision is
// set.
type HistoryRecord struct {
	Time            time.Time `json:"time"` // at which the router saw the change, or the end of the decision
	Op              string    `json:"op"`
	UID             string    `json:"uid,omitempty"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	Initial         bool      `json:"initial,omitempty"` // the object existed when the router saw it for the first time
	Stale           bool      `json:"stale,omitempty"`   // inferred from a list: states between may be missing
	// of a change: the fields that differ, and the number of those beyond a bound
	Fields     []FieldChange `json:"fields,omitempty"`
	MoreFields int           `json:"moreFields,omitempty"`
	// of a change: the last of managedFields of the new state, if the source keeps them
	Manager string `json:"manager,omitempty"`
	// of a change: the states are not recorded
	NoStates bool `json:"noStates,omitempty"`
	// of a change, if the query asks for states: those before and after it
	Before json.RawMessage `json:"before,omitempty"`
	After  json.RawMessage `json:"after,omitempty"`

	Decision *Decision `json:"decision,omitempty"`
}

// FieldChange is a field with another value. The values are JSON, cut if they are long.
type FieldChange struct {
	Path string `json:"path"`
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
}

// Decision is the end of a delta that a route wanted, or says that a rule holds it back.
type Decision struct {
	Route string `json:"route"`
	// delivered, dropped, dead_lettered, coalesced, suppressed or shadowed; held (another
	// decision follows), cancelled (its cause ended before it was reported) or skipped (its
	// condition held before the route began, so it is never reported)
	Outcome string `json:"outcome"`
	// the rule that holds it back: for, limit, debounce, batch or existing
	Rule string `json:"rule,omitempty"`
	// when the rule ends, and when at the latest if further changes extend it
	Until  time.Time `json:"until,omitzero"`
	Latest time.Time `json:"latest,omitzero"`
	// of a coalesced delta: the resourceVersion of the change that has it, or that a later change
	// has undone it
	Into   string `json:"into,omitempty"`
	Undone bool   `json:"undone,omitempty"`

	Repeat  int       `json:"repeat,omitempty"` // the number of the reminder
	Seen    time.Time `json:"seen,omitzero"`    // the time of the change
	Matched time.Time `json:"matched,omitzero"` // when it became pending; zero: before the start
	Taken   time.Time `json:"taken,omitzero"`   // when a worker took it; zero: none did
	Events  int       `json:"events,omitempty"`
	// deltas that the limit held back before this one
	Suppressed  int    `json:"suppressed,omitempty"`
	Redelivered bool   `json:"redelivered,omitempty"`
	Reason      string `json:"reason,omitempty"` // of the last failure
	Steps       []Step `json:"steps,omitempty"`
	Skipped     int    `json:"skipped,omitempty"` // further steps
}

// Step is a call of the handler, a write to a sink, or a hand-over to a downstream route.
type Step struct {
	Kind  string    `json:"kind"` // handle, deliver or forward
	Name  string    `json:"name"`
	Time  time.Time `json:"time"`
	Took  float64   `json:"took"` // seconds
	Size  int       `json:"size"` // deltas or events in the call
	Error string    `json:"error,omitempty"`
}

// WhyQuery asks for the verdicts of a route about the changes of an object.
type WhyQuery struct {
	Route                   string
	Source, Namespace, Name string
	Since, Until            time.Time // zero: open
	Limit                   int       // records per answer, the newest ones, 1 to 1000
}

// Why is a change of an object with the verdict of a route, and the decisions of the route about
// it.
type Why struct {
	HistoryRecord // zero for decisions whose change is not in the span

	// match, no match or error; for a condition: holds, does not hold or error; not known: the
	// states are not recorded
	Verdict string `json:"verdict,omitempty"`
	// the first part of the condition that is not met, as configured
	Because string `json:"because,omitempty"`
	At      string `json:"at,omitempty"`     // file:line:column of this part
	Reason  string `json:"reason,omitempty"` // the reason for an error

	Decisions []HistoryRecord `json:"decisions,omitempty"`
}

// WhyAnswer has the changes of an object in the order of time, as one route sees them.
type WhyAnswer struct {
	Route  string    `json:"route"`
	Source string    `json:"source"`
	From   time.Time `json:"from,omitzero"` // of earlier times nothing is known
	// reasons for which there is nothing, or for which a verdict may differ from that of its time
	Notes   []string `json:"notes,omitempty"`
	Changes []Why    `json:"changes"`
	More    bool     `json:"more,omitempty"`
	HistoryGaps
}

// RunsQuery selects decisions of a route.
type RunsQuery struct {
	Route        string
	Failed       bool      // only those with a failure, or that were not delivered
	Held         bool      // also those that say that a rule holds a delta back
	Since, Until time.Time // zero: open
	Limit        int       // per answer, 1 to 1000
}

// Run is a decision of a route, with its object.
type Run struct {
	Time      time.Time `json:"time"`
	Source    string    `json:"source"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	UID       string    `json:"uid,omitempty"`
	Op        string    `json:"op"`

	ResourceVersion string `json:"resourceVersion,omitempty"`
	Decision
}

// RunKey identifies a decision among those of a route.
type RunKey struct {
	at                                            int64 // microseconds of Unix time
	source, name, uid, op, version, outcome, rule string
}

// Key returns the identity of a decision.
func (r *Run) Key() RunKey {
	return RunKey{r.Time.UnixMicro(), r.Source, r.Namespace + "/" + r.Name, r.UID, r.Op, r.ResourceVersion, r.Outcome, r.Rule}
}

// RunEvent is a line of a stream of decisions: first the last ones, the oldest first, then a line
// with Listed, and then each new one.
type RunEvent struct {
	Run *Run `json:"run,omitempty"`
	// the number of earlier decisions that came too fast to be shown
	Missed int64        `json:"missed,omitempty"`
	Listed *HistoryGaps `json:"listed,omitempty"`
	Error  string       `json:"error,omitempty"` // the last line of a stream that the router ends
}

// RunsAnswer has the last decisions of a route, the newest first.
type RunsAnswer struct {
	Route string    `json:"route"`
	From  time.Time `json:"from,omitzero"` // of earlier times nothing is known
	Runs  []Run     `json:"runs"`
	HistoryGaps
}

// History gives the API access to the history. It is called from any goroutine.
type History interface {
	Object(ctx context.Context, q HistoryQuery) (HistoryAnswer, error)
	Runs(ctx context.Context, q RunsQuery) (RunsAnswer, error)
	// FollowRuns calls show for each event until ctx is done or show returns an error. The
	// recording of decisions does not wait for it. A *[QueryError] is a mistake in the query.
	FollowRuns(ctx context.Context, q RunsQuery, show func(RunEvent) error) error
	Why(ctx context.Context, q WhyQuery) (WhyAnswer, error)
	// Excerpt writes a recording. An error before the first byte is one of the query.
	Excerpt(ctx context.Context, q ExcerptQuery, out io.Writer) error
}

var errNoHistory = errors.New("the router records no history: set history in its configuration, which needs state.dir, and restart it")

// parseSpan reads the parameters since and until.
func parseSpan(values url.Values) (since, until time.Time, err error) {
	for name, into := range map[string]*time.Time{"since": &since, "until": &until} {
		if text := values.Get(name); text != "" {
			if *into, err = time.Parse(time.RFC3339Nano, text); err != nil {
				return since, until, fmt.Errorf("%s: %q is no time, as in 2006-01-02T15:04:05Z", name, text)
			}
		}
	}
	return since, until, nil
}

// parseBool reads a parameter that is true or false, and false if it is absent.
func parseBool(values url.Values, name string) (bool, error) {
	if !values.Has(name) {
		return false, nil
	}
	is, err := strconv.ParseBool(values.Get(name))
	if err != nil {
		return false, fmt.Errorf("%s: %q is neither true nor false", name, values.Get(name))
	}
	return is, nil
}

func parseHistory(source, text string) (q HistoryQuery, err error) {
	values, err := parameters(text, "namespace", "name", "since", "until", "states", "limit")
	if err != nil {
		return q, err
	}
	q = HistoryQuery{Source: source, Namespace: values.Get("namespace"), Name: values.Get("name")}
	if q.Name == "" {
		return q, errors.New("name is missing: write ?name=…, and &namespace=… if the object has one")
	}
	if q.Since, q.Until, err = parseSpan(values); err != nil {
		return q, err
	}
	if q.States, err = parseBool(values, "states"); err != nil {
		return q, err
	}
	q.Limit, err = limitOf(values)
	return q, err
}

func (c *control) history(r *http.Request) (any, error) {
	if c.History == nil {
		return nil, refuse(http.StatusConflict, errNoHistory)
	}
	q, err := parseHistory(r.PathValue("source"), r.URL.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err)
	}
	answer, err := c.History.Object(r.Context(), q)
	answer.Records = append([]HistoryRecord{}, answer.Records...)
	return answer, err
}

func parseWhy(route, text string) (q WhyQuery, err error) {
	values, err := parameters(text, "source", "namespace", "name", "since", "until", "limit")
	if err != nil {
		return q, err
	}
	q = WhyQuery{Route: route, Source: values.Get("source"), Namespace: values.Get("namespace"), Name: values.Get("name")}
	if q.Source == "" || q.Name == "" {
		return q, errors.New("source or name is missing: write ?source=…&name=…, and &namespace=… if the object has one")
	}
	if q.Since, q.Until, err = parseSpan(values); err != nil {
		return q, err
	}
	q.Limit, err = limitOf(values)
	return q, err
}

func (c *control) why(r *http.Request) (any, error) {
	if c.History == nil {
		return nil, refuse(http.StatusConflict, errNoHistory)
	}
	q, err := parseWhy(r.PathValue("route"), r.URL.RawQuery)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, err)
	}
	answer, err := c.History.Why(r.Context(), q)
	answer.Changes = append([]Why{}, answer.Changes...)
	return answer, err
}

func parseRuns(route, text string) (q RunsQuery, err error) {
	values, err := parameters(text, "failed", "held", "watch", "since", "until", "limit")
	if err != nil {
		return q, err
	}
	q.Route = route
	if q.Since, q.Until, err = parseSpan(values); err != nil {
		return q, err
	}
	if q.Failed, err = parseBool(values, "failed"); err != nil {
		return q, err
	}
	if q.Held, err = parseBool(values, "held"); err != nil {
		return q, err
	}
	q.Limit, err = limitOf(values)
	return q, err
}

// runs answers with the last decisions of a route, or with a stream that goes on.
func (c *control) runs(w http.ResponseWriter, r *http.Request) {
	if c.History == nil {
		fail(w, http.StatusConflict, errNoHistory)
		return
	}
	q, err := parseRuns(r.PathValue("route"), r.URL.RawQuery)
	watch := false
	if err == nil {
		watch, err = parseBool(r.URL.Query(), "watch")
	}
	switch {
	case err != nil:
		fail(w, http.StatusBadRequest, err)
	case watch:
		c.stream(w, r, func(ctx context.Context, out *stream) error { return c.follow(ctx, q, out) })
	default:
		conclude(w, r, func(r *http.Request) (any, error) {
			answer, err := c.History.Runs(r.Context(), q)
			answer.Runs = append([]Run{}, answer.Runs...)
			return answer, err
		})
	}
}

// follow writes a line for each event, and the reason for the end.
func (c *control) follow(ctx context.Context, q RunsQuery, out *stream) error {
	err := c.History.FollowRuns(ctx, q, func(e RunEvent) error { return out.write(e) })
	if denied := withdrawn(ctx); denied != nil && out.begun {
		_ = out.write(RunEvent{Error: denied.Error()})
	}
	return err
}

// spanOf returns the parameters of a span and a limit.
func spanOf(since, until time.Time, limit int) url.Values {
	values := url.Values{"limit": {fmt.Sprint(min(max(limit, 1), maxLimit))}}
	for name, at := range map[string]time.Time{"since": since, "until": until} {
		if !at.IsZero() {
			values.Set(name, at.UTC().Format(time.RFC3339Nano))
		}
	}
	return values
}

// History returns the newest records about an object.
func (c *Client) History(ctx context.Context, q HistoryQuery) (answer HistoryAnswer, err error) {
	values := spanOf(q.Since, q.Until, q.Limit)
	values.Set("name", q.Name)
	if q.Namespace != "" {
		values.Set("namespace", q.Namespace)
	}
	if q.States {
		values.Set("states", "true")
	}
	return answer, c.call(ctx, http.MethodGet, "/api/v1/history/"+url.PathEscape(q.Source)+"?"+values.Encode(), nil, &answer)
}

// Why returns the newest changes of an object, as a route sees them.
func (c *Client) Why(ctx context.Context, q WhyQuery) (answer WhyAnswer, err error) {
	values := spanOf(q.Since, q.Until, q.Limit)
	values.Set("source", q.Source)
	values.Set("name", q.Name)
	if q.Namespace != "" {
		values.Set("namespace", q.Namespace)
	}
	return answer, c.call(ctx, http.MethodGet, "/api/v1/routes/"+url.PathEscape(q.Route)+"/why?"+values.Encode(), nil, &answer)
}

// path returns the path of a query, with further parameters.
func (q *RunsQuery) path(further ...string) string {
	values := spanOf(q.Since, q.Until, q.Limit)
	if q.Failed {
		values.Set("failed", "true")
	}
	if q.Held {
		values.Set("held", "true")
	}
	for _, name := range further {
		values.Set(name, "true")
	}
	return "/api/v1/routes/" + url.PathEscape(q.Route) + "/runs?" + values.Encode()
}

// Runs returns the newest decisions of a route.
func (c *Client) Runs(ctx context.Context, q RunsQuery) (answer RunsAnswer, err error) {
	return answer, c.call(ctx, http.MethodGet, q.path(), nil, &answer)
}

// FollowRuns calls show for each event until ctx is done or show returns an error. An end by the
// router is an error too: an *[AnswerError] if it refuses the query.
func (c *Client) FollowRuns(ctx context.Context, q RunsQuery, show func(RunEvent) error) error {
	response, err := c.open(ctx, q.path("watch"))
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	for lines := json.NewDecoder(response.Body); ; {
		var e RunEvent
		err := lines.Decode(&e)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, io.EOF):
			return errors.New("the router closed the stream")
		case err != nil:
			return interrupted(fmt.Sprintf("the stream from %s broke off", c.addr), err)
		case e.Error != "":
			return &AnswerError{http.StatusForbidden, e.Error}
		}
		if err := show(e); err != nil {
			return err
		}
	}
}
