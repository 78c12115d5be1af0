package commands

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/cli"
	"github.com/deltarouter/deltarouter/internal/listing"
	"github.com/deltarouter/deltarouter/internal/printable"
)

// historyCommand shows what happened to an object.
func historyCommand() cli.Command {
	return cli.Command{
		Name:    "history",
		Args:    "RESOURCE/NAME",
		Summary: "Show what happened to an object: its changes, and what each route did with them",
		Description: `
The running router answers from its history, also about deleted objects; see history in the configuration. RESOURCE is
the name of a source, or the resource that one watches, as kubectl takes it. A change has the fields that differ, and
below it the decisions of the routes that wanted it. A decision that a filter made is not recorded; router explain and
router tap show these.

-at prints the object as it was at a time. Of the last second before a crash of the router nothing may be recorded.`,
		Examples: []cli.Example{
			{Line: "router history pods/web-0 -n shop", Text: "the changes of the last day, and what the routes did"},
			{Line: "router history pods/web-0 -n shop -since 2h", Text: "those of two hours"},
			{Line: "router history deploy/web -n shop -at 2026-11-30T12:00:00Z -o yaml", Text: "the object as it was"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			h := &historyOf{}
			h.Formats = []string{"text", "json", "yaml"}
			h.AddFlags(f)
			h.addFlags(f, "print the object as it was then")
			return h.run
		},
	}
}

// historyOf shows the history of an object.
type historyOf struct {
	cli.Remote

	query            api.HistoryQuery
	route            string // why: the route that is asked about
	since, until, at string
	time             time.Time // at
}

// addFlags adds the flags that select records.
func (h *historyOf) addFlags(f *cli.Flags, at string) {
	f.StringVar(&h.query.Namespace, "n", "", "`NAMESPACE` the namespace of the object")
	f.StringVar(&h.since, "since", "24h", "`TIME` the begin: how long ago, as in 2h or 7d, or a time, as in 2006-01-02T15:04:05Z")
	f.StringVar(&h.until, "until", "", "`TIME` the end, in the same form; by default now")
	f.StringVar(&h.at, "at", "", "`TIME` "+at)
	f.IntVar(&h.query.Limit, "limit", 200, "`N` the newest records, at most 1000")
}

// timeOf reads a time, or how long ago it was; the zero time if the text is empty.
func timeOf(flag, text string, now time.Time) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return now.Add(-ago), nil
	}
	if days, ok := strings.CutSuffix(text, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			return now.Add(-time.Duration(n) * 24 * time.Hour), nil //nolint:gosec // 16 bits
		}
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, time.DateOnly} {
		if at, err := time.ParseInLocation(layout, text, time.Local); err == nil {
			return at, nil
		}
	}
	return time.Time{}, cli.Mistakef("-%s %s: write how long ago, as in 2h or 7d, or a time, as in 2006-01-02T15:04:05Z", flag, text)
}

func (h *historyOf) run(ctx context.Context, s cli.Streams, args []string) error {
	h.Streams = s
	if err := h.find(ctx, "history", args); err != nil {
		return err
	}
	if !h.time.IsZero() {
		return h.printAt(ctx, h.time)
	}
	answer, err := h.Client.History(ctx, h.query)
	if err != nil {
		return err
	}
	h.warn(answer.From, answer.More, answer.HistoryGaps)
	if len(answer.Kept) > 0 {
		cli.Printf(h.Err, "the source keeps only names, versions and these fields (cache: auto): %s\n", strings.Join(answer.Kept, ", "))
	}
	switch h.Output {
	case "json":
		return h.PrintJSON(answer)
	case "yaml":
		return h.PrintYAML(answer)
	}
	for i := range answer.Records {
		h.print(&answer.Records[i])
	}
	if len(answer.Records) == 0 {
		cli.Printf(h.Err, "No change of %s is recorded in that time, and no decision about it.\n", h.object())
		if h.query.Namespace == "" {
			cli.Printf(h.Err, "If the object has a namespace, name it with -n.\n")
		}
	}
	return nil
}

// find reads the arguments, connects to the router, and finds the source of the object.
func (h *historyOf) find(ctx context.Context, command string, args []string) (err error) {
	if len(args) != 1 || !strings.Contains(args[0], "/") {
		return cli.Mistakef("name one object: router %s RESOURCE/NAME", command)
	}
	source, name, _ := strings.Cut(args[0], "/")
	if namespace, rest, ok := strings.Cut(name, "/"); ok {
		h.query.Namespace, name = namespace, rest
	}
	h.query.Name = name
	now := time.Now()
	for _, one := range []struct {
		flag, text string
		into       *time.Time
	}{{"since", h.since, &h.query.Since}, {"until", h.until, &h.query.Until}, {"at", h.at, &h.time}} {
		if *one.into, err = timeOf(one.flag, one.text, now); err != nil {
			return err
		}
	}
	if err := h.Connect(ctx); err != nil {
		return err
	}
	sources, err := h.Client.Sources(ctx)
	if err != nil {
		return err
	}
	if h.query.Source, err = listing.Source(source, sources); err != nil {
		return cli.Mistakef("%s", err.Error())
	}
	return nil
}

func (h *historyOf) object() string {
	return h.query.Source + " " + strings.TrimPrefix(h.query.Namespace+"/"+h.query.Name, "/")
}

// warn says what may be missing in an answer.
func (h *historyOf) warn(from time.Time, more bool, gaps api.HistoryGaps) {
	if h.query.Since.Before(from) {
		cli.Printf(h.Err, "the history begins at %s; of earlier times nothing is known\n", from.Local().Format(time.DateTime))
	}
	if more {
		cli.Printf(h.Err, "only the newest %s are shown: see -limit and -until\n", cli.Count(h.query.Limit, "record"))
	}
	warnGaps(&h.Remote, gaps)
}

func warnGaps(r *cli.Remote, gaps api.HistoryGaps) {
	if gaps.Lost > 0 {
		cli.Printf(r.Err, "%s of this time could not be written, and may be missing here\n", cli.Count(gaps.Lost, "record"))
	}
	if gaps.Damaged > 0 {
		cli.Printf(r.Err, "%s of the history cannot be read as a whole: see the log of the router\n", cli.Count(gaps.Damaged, "segment"))
	}
}

// stamp is the format of the times of records.
const stamp = "2006-01-02 15:04:05.000"

// print prints a record.
func (h *historyOf) print(r *api.HistoryRecord) {
	if d := r.Decision; d != nil {
		cli.Printf(h.Out, "    → %s: %s\n", d.Route, summary(d, r.Time, r.Op, true))
		return
	}
	notes := ""
	if r.Initial {
		notes += ", as the router first saw it"
	}
	if r.Stale {
		notes += ", found by a list"
	}
	if r.Manager != "" {
		notes += ", by " + r.Manager
	}
	cli.Printf(h.Out, "%s %s %s%s\n", r.Time.Local().Format(stamp), r.Op, dash(r.ResourceVersion), notes)
	printFields(h.Out, r.Fields, r.MoreFields)
}

// printFields prints the fields that differ.
func printFields(out io.Writer, fields []api.FieldChange, more int) {
	for _, f := range fields {
		cli.Printf(out, "    %s: %s → %s\n", f.Path, dash(f.From), dash(f.To))
	}
	if more > 0 {
		cli.Printf(out, "    and %s\n", cli.Count(more, "field"))
	}
}

// summary describes a decision that ended at a time. named: it has the op if that is a report.
func summary(d *api.Decision, end time.Time, op string, named bool) string {
	var b strings.Builder
	switch b.WriteString(strings.ReplaceAll(d.Outcome, "_", "-")); d.Outcome {
	case "coalesced", "suppressed", "held", "cancelled", "skipped":
		b.WriteString(heldBack(d, end, op))
	default:
		fmt.Fprintf(&b, " %s after the change", printable.Duration(max(0, end.Sub(d.Seen)).Round(time.Millisecond)))
	}
	if named && (op == "entered" || op == "left") {
		b.WriteString(" (" + op + ")")
	}
	if d.Repeat > 0 {
		fmt.Fprintf(&b, ", reminder %d", d.Repeat)
	}
	if d.Events > 0 {
		b.WriteString(", " + cli.Count(d.Events, "event"))
	}
	calls := make(map[string]int)
	for _, s := range d.Steps {
		name := s.Name
		if s.Kind == "handle" {
			name = "handler " + name
		}
		if calls[name]++; calls[name] == 1 && s.Kind != "handle" {
			b.WriteString(", to " + name)
		}
	}
	if n := len(d.Steps) + d.Skipped; n > len(calls) {
		fmt.Fprintf(&b, ", %s", cli.Count(n, "call"))
	}
	if d.Suppressed > 0 {
		fmt.Fprintf(&b, ", %s held back before", cli.Count(d.Suppressed, "change"))
	}
	if d.Redelivered {
		b.WriteString(", from the dead letters")
	}
	if d.Reason != "" {
		b.WriteString(": " + short(d.Reason))
	}
	return b.String()
}

// heldBack describes the effect of a rule on a delta. A decision of an earlier version has less.
func heldBack(d *api.Decision, at time.Time, op string) string {
	switch {
	case d.Outcome == "skipped":
		return ", the condition held before the route began (existing)"
	case d.Outcome == "cancelled" && d.Rule == "for" && op != "left":
		return ", the object exists again before the end of for"
	case d.Outcome == "cancelled":
		return ", the condition ended before " + d.Rule + " allowed a report"
	case d.Undone:
		return ", a later change has undone it"
	case d.Outcome == "coalesced" && d.Into != "":
		return ", change " + d.Into + " has it"
	case d.Outcome == "coalesced":
		return ", a later change has it"
	case d.Outcome == "suppressed" && op == "left":
		return " by the limit, the condition still holds for objects of its key"
	}
	by := " by " + d.Rule
	if d.Rule == "limit" || d.Rule == "" {
		by = " by the limit"
	}
	if d.Until.IsZero() {
		return by
	}
	if by += " until " + clock(d.Until, at); d.Latest.After(d.Until) {
		by += ", at the latest " + clock(d.Latest, at)
	}
	return by
}

// printAt prints the object as it was at a time: as the last change before it left it, or as the
// first one after it found it. An object without a change since then is as the cache has it.
func (h *historyOf) printAt(ctx context.Context, at time.Time) error {
	q := h.query
	q.Since, q.Until, q.States, q.Limit = time.Time{}, time.Time{}, true, 1000
	answer, err := h.Client.History(ctx, q)
	if err != nil {
		return err
	}
	state, deleted, known := stateAt(&answer, at)
	switch {
	case deleted:
		return fmt.Errorf("%s did not exist at %s", h.object(), at.Local().Format(time.DateTime))
	case at.Before(answer.From):
		return fmt.Errorf("the history begins at %s", answer.From.Local().Format(time.DateTime))
	case known && len(state) == 0:
		return fmt.Errorf("the state of %s at that time is not recorded: see history.objects, history.sources and secrets of the source", h.object())
	case !known: // it has not changed since
		now, err := h.Client.Query(ctx, api.Query{Source: q.Source, Namespace: q.Namespace, Name: q.Name, Limit: 1}, "")
		if err != nil {
			return err
		}
		if len(now.Items) == 0 {
			return fmt.Errorf("%s is not in the cache, and the history has no change of it", h.object())
		}
		state = now.Items[0]
	}
	if h.Output == "json" {
		return h.PrintJSON(state)
	}
	var object any
	if err := json.Unmarshal(state, &object); err != nil {
		return err
	}
	return h.PrintYAML(object)
}

// stateAt returns the state of an object at a time; known is false if no record tells it.
func stateAt(a *api.HistoryAnswer, at time.Time) (state json.RawMessage, deleted, known bool) {
	for i := range a.Records {
		r := &a.Records[i]
		switch {
		case r.Decision != nil:
		case !r.Time.After(at):
			gone := r.Op == "deleted" || r.Op == "deselected"
			state, deleted, known = r.After, gone, !gone && !r.Initial
		case !known && !deleted:
			// the first change after that time
			return r.Before, r.Op == "added" && !r.Initial, r.Op != "added"
		default:
			return state, deleted, known
		}
	}
	return state, deleted, known
}

// whyCommand shows why a route told, or did not tell, of the changes of an object.
func whyCommand() cli.Command {
	return cli.Command{
		Name:    "why",
		Args:    "RESOURCE/NAME",
		Summary: "Show why a route told, or did not tell, of the changes of an object",
		Description: `
For each change that the running router has in its history, it prints the verdict of the route, with the first test that
is not met, and below it what the route did. A verdict is found by the rules of now, with the states of then; objects
that a filter looks up are those of now. If there is no change, it says why there may be none.`,
		Examples: []cli.Example{
			{Line: "router why pods/web-0 -n shop -route crashes", Text: "the changes of the last day"},
			{Line: "router why pods/web-0 -n shop -route crashes -at 2026-11-30T12:00:00Z", Text: "the last change at that time"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			h := &historyOf{}
			h.AddFlags(f)
			f.StringVar(&h.route, "route", "", "`ROUTE` the route")
			h.addFlags(f, "only the last change until then")
			return h.why
		},
	}
}

func (h *historyOf) why(ctx context.Context, s cli.Streams, args []string) error {
	h.Streams = s
	if h.route == "" {
		return cli.Mistakef("name a route: router why RESOURCE/NAME -route ROUTE")
	}
	if err := h.find(ctx, "why", args); err != nil {
		return err
	}
	q := api.WhyQuery{
		Route: h.route, Source: h.query.Source, Namespace: h.query.Namespace, Name: h.query.Name, Since: h.query.Since, Until: h.query.Until, Limit: h.query.Limit,
	}
	if !h.time.IsZero() {
		q.Since, q.Until = time.Time{}, time.Time{}
	}
	answer, err := h.Client.Why(ctx, q)
	if err != nil {
		return err
	}
	if !h.time.IsZero() {
		answer.Changes = lastUntil(answer.Changes, h.time)
	}
	if h.Output == "json" {
		return h.PrintJSON(answer)
	}
	h.warn(answer.From, answer.More, answer.HistoryGaps)
	for _, note := range answer.Notes {
		cli.Printf(h.Err, "%s\n", note)
	}
	for i := range answer.Changes {
		h.printWhy(&answer.Changes[i])
	}
	return nil
}

// lastUntil returns the last change until a time.
func lastUntil(all []api.Why, at time.Time) (last []api.Why) {
	for i := range all {
		if !all[i].Time.After(at) && all[i].Verdict != "" {
			last = all[i : i+1]
		}
	}
	return last
}

func (h *historyOf) printWhy(w *api.Why) {
	if w.Verdict != "" {
		because := ""
		if w.Because != "" {
			because = ": " + short(w.Because)
		}
		if w.At != "" {
			because += "  (" + w.At + ")"
		}
		if w.Reason != "" {
			because += ": " + w.Reason
		}
		cli.Printf(h.Out, "%s %s %s  %s%s\n", w.Time.Local().Format(stamp), w.Op, dash(w.ResourceVersion), w.Verdict, because)
	}
	for i := range w.Decisions {
		d := &w.Decisions[i]
		cli.Printf(h.Out, "    → %s\n", summary(d.Decision, d.Time, d.Op, true))
	}
}

// runsCommand shows the last decisions of a route.
func runsCommand() cli.Command {
	return cli.Command{
		Name:    "runs",
		Args:    "ROUTE",
		Summary: "Show the last decisions of a route, the newest first",
		Description: `
The running router answers from its history, over restarts; see history in the configuration. A decision is what the route
did with a change that it wanted: when, to which sinks, in how many calls, and the last failure. With -held, it also
prints which changes a rule held back: for, limit, debounce or batch, and until when.

-w prints the last decisions, the oldest first, and then each new one, also after a restart of the router.`,
		Examples: []cli.Example{
			{Line: "router runs crashes", Text: "the last decisions"},
			{Line: "router runs crashes -failed -since 24h", Text: "those with a failure"},
			{Line: "router runs crashes -w", Text: "the last decisions, and then each new one, until it is interrupted"},
		},
		Setup: func(f *cli.Flags) cli.Run {
			r := &cli.Remote{}
			var q api.RunsQuery
			var since string
			var follow bool
			r.AddFlags(f)
			f.BoolVar(&follow, "w", false, "print the last decisions, then each new one, until it is interrupted")
			f.BoolVar(&q.Failed, "failed", false, "only decisions with a failure, and those that ended without a delivery")
			f.BoolVar(&q.Held, "held", false, "also the changes that a rule of the route holds back, and those that it never reports because of one")
			f.StringVar(&since, "since", "", "`TIME` the begin: how long ago, as in 2h, or a time; by default that of the history")
			f.IntVar(&q.Limit, "limit", 20, "`N` the newest decisions, at most 1000")
			return func(ctx context.Context, s cli.Streams, args []string) (err error) {
				r.Streams = s
				if len(args) != 1 {
					return cli.Mistakef("name one route: router runs ROUTE")
				}
				q.Route = args[0]
				if q.Since, err = timeOf("since", since, time.Now()); err != nil {
					return err
				}
				if follow {
					return (&follower{Remote: r, query: q, seen: make(map[api.RunKey]bool)}).run(ctx)
				}
				return showRuns(ctx, r, q)
			}
		},
	}
}

func showRuns(ctx context.Context, r *cli.Remote, q api.RunsQuery) error {
	if err := r.Connect(ctx); err != nil {
		return err
	}
	answer, err := r.Client.Runs(ctx, q)
	if err != nil {
		return err
	}
	warnGaps(r, answer.HistoryGaps)
	if r.Output == "json" {
		return r.PrintJSON(answer)
	}
	if len(answer.Runs) == 0 {
		since := max(q.Since.UnixMicro(), answer.From.UnixMicro())
		cli.Printf(r.Err, "No decision of route %s since %s.\n", q.Route, time.UnixMicro(since).Format(time.DateTime))
		return nil
	}
	w := tabwriter.NewWriter(r.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "TIME\tOP\tSOURCE\tOBJECT\tDECISION")
	for i := range answer.Runs {
		one := &answer.Runs[i]
		cli.Printf(w, "%s\t%s\t%s\t%s\t%s\n", one.Time.Local().Format(stamp), one.Op, one.Source,
			strings.TrimPrefix(one.Namespace+"/"+one.Name, "/"), summary(&one.Decision, one.Time, one.Op, false))
	}
	return w.Flush()
}
