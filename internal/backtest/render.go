package backtest

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/deltarouter/deltarouter/internal/printable"
)

// stamp is the format of the times of events.
const stamp = "2006-01-02 15:04:05"

// widest is the number of characters of an event's data that a line shows.
const widest = 100

// head is the first line: the time and the speed.
func (r *Report) head() string {
	span := r.To.Sub(r.From)
	speed := ""
	if hours := span.Hours() / max(r.Took, 1e-3); span > 0 {
		speed = fmt.Sprintf(", in %s: %.3g hours per second", printable.Duration(time.Duration(r.Took*float64(time.Second)).Round(time.Millisecond)), hours)
	}
	return fmt.Sprintf("%s to %s (%s) of cluster %s: %d changes%s",
		r.From.Local().Format(stamp), r.To.Local().Format(stamp), printable.Duration(span.Round(time.Second)), r.Cluster, r.Changes, speed)
}

// numbers describes a summary without its route.
func (r *Report) numbers(s *Summary) string {
	var b strings.Builder
	fmt.Fprintf(&b, "told %d, keys %d", s.Told, s.Keys)
	for _, one := range []struct {
		name string
		n    int
	}{
		{fmt.Sprintf("outside Mon-Fri %d-%d", r.Office.From, r.Office.To), s.Outside},
		{"false alarms", s.False},
		{"deltas given up", s.Failed},
		{"of the objects at the begin", s.Initial},
	} {
		if one.n > 0 {
			fmt.Fprintf(&b, ", %s %d", one.name, one.n)
		}
	}
	if r.Against {
		fmt.Fprintf(&b, "; before %d: new %d, gone %d, at another time %d", s.Before, s.New, s.Gone, s.Moved)
	}
	return b.String()
}

// marks begin the line of an event.
var marks = map[string]string{"": " ", "new": "+", "gone": "-", "moved": "~"}

// line describes an event.
func (e *Event) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s  %s", marks[e.Change], e.Time.Local().Format(stamp), e.Subject)
	if e.Error != "" {
		return b.String() + "  given up: " + short(e.Error)
	}
	if e.Key != "" && e.Key != e.Subject {
		b.WriteString("  key " + short(e.Key))
	}
	if e.Change == "moved" {
		b.WriteString("  before at " + e.Was.Local().Format(stamp))
	}
	if e.False {
		b.WriteString("  false alarm")
	}
	return b.String() + "  " + short(string(e.Data))
}

func short(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if utf8.RuneCountInString(text) <= widest {
		return text
	}
	return string([]rune(text)[:widest]) + "…"
}

// of returns the events of a route, at most limit, and how many more there are.
func (r *Report) of(route string, limit int) (shown []Event, more int) {
	all := slices.DeleteFunc(slices.Clone(r.Events), func(e Event) bool { return e.Route != route })
	if len(all) <= limit {
		return all, 0
	}
	return all[:limit], len(all) - limit
}

// Text writes the report for a terminal, with at most limit events of each route.
func (r *Report) Text(out io.Writer, limit int) {
	fmt.Fprintln(out, r.head())
	for _, note := range r.Notes {
		fmt.Fprintln(out, "note: "+note)
	}
	for i := range r.Routes {
		s := &r.Routes[i]
		fmt.Fprintf(out, "\n%s: %s\n", s.Route, r.numbers(s))
		shown, more := r.of(s.Route, limit)
		for k := range shown {
			fmt.Fprintln(out, "  "+shown[k].line())
		}
		if more > 0 {
			fmt.Fprintf(out, "    and %d more: see -limit\n", more)
		}
	}
	if r.More > 0 {
		fmt.Fprintf(out, "\n%d events are counted only\n", r.More)
	}
}

// Markdown writes the report for a pull request, with at most limit events of each route.
func (r *Report) Markdown(out io.Writer, limit int) {
	fmt.Fprintf(out, "### Backtest\n\n%s\n\n", cell(r.head()))
	if r.Against {
		fmt.Fprint(out, "| route | told | before | new | gone | at another time | keys | outside hours | false | given up |\n|---|---|---|---|---|---|---|---|---|---|\n")
	} else {
		fmt.Fprint(out, "| route | told | keys | outside hours | false | given up |\n|---|---|---|---|---|---|\n")
	}
	for i := range r.Routes {
		s := &r.Routes[i]
		if fmt.Fprintf(out, "| %s | %d | ", cell(s.Route), s.Told); r.Against {
			fmt.Fprintf(out, "%d | %d | %d | %d | ", s.Before, s.New, s.Gone, s.Moved)
		}
		fmt.Fprintf(out, "%d | %d | %d | %d |\n", s.Keys, s.Outside, s.False, s.Failed)
	}
	for _, note := range r.Notes {
		fmt.Fprintf(out, "\n- %s\n", cell(note))
	}
	for i := range r.Routes {
		route := r.Routes[i].Route
		shown, more := r.of(route, limit)
		if len(shown) == 0 {
			continue
		}
		fmt.Fprintf(out, "\n<details><summary>%s</summary>\n\n", cell(route))
		for k := range shown {
			fmt.Fprintln(out, "    "+shown[k].line())
		}
		if more > 0 {
			fmt.Fprintf(out, "    and %d more\n", more)
		}
		fmt.Fprint(out, "\n</details>\n")
	}
}

// cell makes a text one that Markdown shows as it is.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "&", "&amp;", "`", "\\`", "*", "\\*", "_", "\\_", "\n", " ").Replace(text)
}
