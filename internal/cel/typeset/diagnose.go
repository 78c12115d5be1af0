package typeset

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common"

	"github.com/deltarouter/deltarouter/internal/cel/celerr"
	"github.com/deltarouter/deltarouter/internal/cel/syntax"
)

// Reporter describes the mistakes in a text.
type Reporter struct {
	Define, Text string // empty define: the expression proper
	CEL          *cel.Env
	Defines      map[string]string
	Missed       []Missed // by the check that failed
	AboutEvents  bool     // the text sees an event, and no object
}

// CompileError makes a CompileError of cel-go's issues.
func (r *Reporter) CompileError(issues *cel.Issues) *celerr.CompileError {
	out := &celerr.CompileError{Define: r.Define}
	text, missed := r.Text, r.Missed
	for _, issue := range issues.Errors() {
		found := celerr.Issue{Line: max(1, issue.Location.Line()), Column: max(0, issue.Location.Column())}
		if name, ok := strings.CutPrefix(issue.Message, "undefined field '"); ok {
			name = strings.TrimSuffix(name, "'")
			found.Message = undefinedField(name, &missed)
			found.Line, found.Column = syntax.AfterDot(text, found.Line, found.Column)
		} else {
			found.Message = r.message(issue)
		}
		if key := keyWithDots(text, found.Line, found.Column); key != "" && !strings.HasPrefix(found.Message, syntaxError) {
			if slices.ContainsFunc(out.Issues, func(i celerr.Issue) bool { return strings.HasSuffix(i.Message, ": "+key) }) {
				continue
			}
			found.Message, _, _ = strings.Cut(found.Message, "; did you mean ")
			found.Message += "; write a key with dots or a slash in brackets: " + key
		}
		if strings.HasPrefix(found.Message, syntaxError) {
			if better, ok := slipIn(text); ok {
				found = better
			}
		}
		out.Issues = append(out.Issues, found)
		if strings.HasPrefix(found.Message, syntaxError) {
			break // the others are consequences of the first
		}
	}
	return out
}

const syntaxError = "syntax error: "

// message shortens a message of cel-go and adds a remedy, or the nearest name to a message about a
// name. If cel-go changes its texts, the messages become longer, not wrong.
func (r *Reporter) message(issue *common.Error) string {
	m := strings.ReplaceAll(strings.TrimSuffix(issue.Message, " (in container '')"), syntax.FuncLookupMax, syntax.FuncLookup)
	if name, ok := strings.CutPrefix(m, "undeclared reference to '"); ok {
		name = strings.TrimSuffix(name, "'")
		if meant, ok := otherNames()[name]; ok {
			return fmt.Sprintf("%s; did you mean %q?", m, meant)
		}
		if where, ok := insideOf(name); ok && !r.AboutEvents {
			return fmt.Sprintf("%s; did you mean %s?", m, where)
		}
		if r.AboutEvents {
			return m + "; an expression about an event sees event and secrets"
		}
		return m + Suggest(name, r.knownNames())
	}
	if syntax, ok := strings.CutPrefix(m, "Syntax error: "); ok {
		return syntaxError + syntaxMessage(syntax)
	}
	if strings.HasSuffix(m, "' does not support field selection") {
		return m + remedyForSelection(m)
	}
	if strings.HasPrefix(m, "found no matching overload for '") {
		m = regexp.MustCompile(`^(found no matching overload for '(?:lookup|get|list)' applied to '\()[^,()]*\.[^,()]*, `).ReplaceAllString(m, "$1")
		remedy := remedyForOverload(m)
		if remedy == numberOfText && besideQuantity(r.Text, issue.Location.Line(), issue.Location.Column()) {
			remedy = quantityOfText
		}
		return noOverloadFor(m) + remedy
	}
	return m
}

func (r *Reporter) knownNames() []string {
	names := slices.Collect(maps.Keys(r.Defines))
	names = append(names, syntax.VarObject, syntax.VarOldObject, syntax.VarOp, syntax.VarSource, syntax.VarCluster, syntax.VarNow, syntax.VarSince, syntax.VarLate, syntax.VarRepeat, syntax.VarSuppressed, syntax.VarObjects, syntax.VarEvent, syntax.VarEvents)
	for name := range r.CEL.Functions() {
		if name[0] >= 'a' && name[0] <= 'z' && !strings.Contains(name, syntax.Prefix) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
