package cases

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"
)

// result is an event or an error of a run.
type result struct {
	at                  time.Duration
	route, sink         string
	kind, subject, text string // type and subject of the event; text of the error
	data, body          any
	sends               bool // the sink sends the body instead of the event
}

func (r *result) failed() bool { return r.text != "" }

// meets reports whether a result is as expected. None meets an empty expectation, which only
// -update gets this far: it writes the result instead.
func (e *expectation) meets(r *result) bool {
	switch {
	case e.empty(), (e.Error != "") != r.failed(), e.At != nil && *e.At != r.at:
		return false
	case r.failed():
		return strings.Contains(r.text, e.Error)
	}
	return (e.Type == "" || e.Type == r.kind) && (e.Subject == "" || e.Subject == r.subject) &&
		(!e.hasData() || within(e.data, r.data, e.Exact)) && (!e.hasBody() || r.sends && within(e.body, r.body, e.Exact))
}

// within reports whether got contains all of want; items of lists must be at the same place. A null
// in want also matches an absent field. With exact, got must contain nothing else.
func within(want, got any, exact bool) bool {
	switch want := want.(type) {
	case object:
		got, ok := got.(object)
		if !ok || exact && len(got) != len(want) {
			return false
		}
		for key, value := range want {
			found, there := got[key]
			if exact && !there || !within(value, found, exact) {
				return false
			}
		}
		return true
	case []any:
		got, ok := got.([]any)
		return ok && slices.EqualFunc(want, got, func(a, b any) bool { return within(a, b, exact) })
	case json.Number:
		got, ok := got.(json.Number)
		return ok && sameNumber(want.String(), got.String())
	}
	if isContainer(got) {
		return false
	}
	return want == got
}

func isContainer(v any) bool {
	switch v.(type) {
	case object, []any:
		return true
	}
	return false
}

// sameNumber compares values instead of digits: 1 equals 1.0. It compares integers of up to 64 bits
// exactly.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	i, errI := strconv.ParseInt(a, 10, 64)
	j, errJ := strconv.ParseInt(b, 10, 64)
	if errI == nil && errJ == nil {
		return i == j
	}
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return errX == nil && errY == nil && x == y
}

// reaches reports whether got has every key that want mentions. Where it has not, the parts of got
// that want mentions may be as good as nothing, and would match any data.
func reaches(want, got any) bool {
	switch want := want.(type) {
	case object:
		got, ok := got.(object)
		for key, value := range want {
			found, there := got[key]
			if ok && !there && value != nil || there && !reaches(value, found) {
				return false
			}
		}
	case []any:
		got, _ := got.([]any)
		for i := range min(len(want), len(got)) {
			if !reaches(want[i], got[i]) {
				return false
			}
		}
	}
	return true
}

// says reports whether a value excludes any other of its form: an empty mapping excludes nothing.
func says(want any) bool {
	o, ok := want.(object)
	if !ok {
		return true
	}
	for _, value := range o {
		if says(value) {
			return true
		}
	}
	return false
}

// shown returns the parts of got that want mentions, for a readable comparison. Differing parts are
// returned whole.
func shown(want, got any) any {
	switch want := want.(type) {
	case object:
		got, ok := got.(object)
		if !ok {
			break
		}
		part := make(object)
		for key, value := range want {
			if found, there := got[key]; there {
				part[key] = shown(value, found)
			} else if value == nil {
				part[key] = nil
			}
		}
		return part
	case []any:
		got, ok := got.([]any)
		if !ok {
			break
		}
		part := slices.Clone(got)
		for i := range min(len(want), len(got)) {
			part[i] = shown(want[i], got[i])
		}
		return part
	case json.Number:
		if got, ok := got.(json.Number); ok && sameNumber(want.String(), got.String()) {
			return want
		}
	}
	return got
}

// pair is an expectation and the corresponding result; one of them may be nil.
type pair struct {
	want *expectation
	got  *result
}

func (p pair) ok() bool { return p.want != nil && p.got != nil && p.want.meets(p.got) }

// align finds the longest sequence of fulfilled expectations, and pairs the rest one by one.
func align(want []*expectation, got []*result) (pairs []pair) {
	best := table(len(want), len(got), func(i, j int) bool { return want[i].meets(got[j]) })
	i, j := 0, 0
	for i < len(want) || j < len(got) {
		a, b := i, j
		for a < len(want) && b < len(got) && !(want[a].meets(got[b]) && best[a][b] == best[a+1][b+1]+1) {
			if best[a+1][b] >= best[a][b+1] {
				a++
			} else {
				b++
			}
		}
		if a == len(want) || b == len(got) {
			a, b = len(want), len(got)
		}
		for i < a || j < b {
			var p pair
			if i < a {
				p.want, i = want[i], i+1
			}
			if j < b {
				p.got, j = got[j], j+1
			}
			pairs = append(pairs, p)
		}
		if i < len(want) && j < len(got) {
			pairs = append(pairs, pair{want[i], got[j]})
			i, j = i+1, j+1
		}
	}
	return pairs
}

// table returns the lengths of the longest common subsequences of the parts from i and from j.
func table(n, m int, same func(i, j int) bool) [][]int {
	best := make([][]int, n+1)
	for i := range best {
		best[i] = make([]int, m+1)
	}
	for i := n - 1; i >= 0; i-- {
		for j := m - 1; j >= 0; j-- {
			best[i][j] = max(best[i+1][j], best[i][j+1])
			if same(i, j) {
				best[i][j] = max(best[i][j], best[i+1][j+1]+1)
			}
		}
	}
	return best
}
