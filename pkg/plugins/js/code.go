package js

import (
	"regexp"
	"strconv"
	"strings"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// code is the code of a handler.
type code struct {
	text string
	file string // its name in stack traces
	// where is the code in the configuration; its Text is empty if the code is in a file
	where config.Script
}

// inlineFile is the name of code that is in the configuration.
const inlineFile = "<source>"

// frame matches a position in the code, as in `at special (handler.js:15:25)`.
func (c *code) frame() *regexp.Regexp {
	return regexp.MustCompile(`(?:at (\S+) \(|at )` + regexp.QuoteMeta(c.file) + `:(\d+)(?::(\d+))?`)
}

// describe returns the message of an exception with the position in the code of the user.
func (c *code) describe(t *thrown, longest int) string {
	message := printable.Text(t.message, longest)
	if strings.Contains(message, "could not load module") {
		message += ": a handler is one file: bundle its modules into it"
	}
	message += remedyForName(message)
	found := c.frame().FindStringSubmatch(t.stack)
	if found == nil {
		return message
	}
	line, _ := strconv.Atoi(found[2])
	column, _ := strconv.Atoi(found[3])
	in := ""
	if name := found[1]; name != "" && name != "default" && !strings.HasPrefix(name, "<") {
		in = " (in " + printable.Text(name, longest) + ")"
	}
	return c.position(line, max(column, 1)) + ": " + message + in
}

var undefinedName = regexp.MustCompile(`^(?:ReferenceError: )?'?(\w+)'? is not defined`)

// remedyForName completes the message about a name that browsers and Node.js define, and the engine
// does not.
func remedyForName(message string) string {
	found := undefinedName.FindStringSubmatch(message)
	if found == nil {
		return ""
	}
	switch found[1] {
	case "fetch", "XMLHttpRequest", "WebSocket":
		return ": use ctx.http({url: …}), which allow.http grants"
	case "setTimeout", "setInterval", "setImmediate":
		return ": there are no timers; return ctx.retry(message, afterMs) to get the delta again later"
	case "require", "module", "exports":
		return ": a handler is one ES module: bundle its modules into it, and use export default"
	case "process", "Deno":
		return ": the environment is not visible; pass values with config, which is ctx.config"
	}
	return ""
}

// position returns file:line:column for an editor.
func (c *code) position(line, column int) string {
	file := c.file
	if c.where.Text != "" {
		p := c.where.Problem(line, column, "")
		file, line, column = p.File, p.Line, p.Column
	}
	return file + ":" + strconv.Itoa(line) + ":" + strconv.Itoa(column)
}
