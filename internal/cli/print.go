package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/internal/printable"
)

// Count is a number of things, each of which has this name.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// PrintJSON prints a value as indented JSON.
func (s Streams) PrintJSON(value any) error {
	encoder := json.NewEncoder(s.Out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// PrintYAML prints a value, or the JSON of one, as YAML.
func (s Streams) PrintYAML(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if text, err = manifest.ToYAML(text); err == nil {
		_, err = s.Out.Write(text)
	}
	return err
}

// Printf prints text in which the arguments are parts of lines: of what others wrote nothing begins
// a line or steers the terminal.
func Printf(w io.Writer, format string, args ...any) {
	for i, arg := range args {
		switch arg := arg.(type) {
		case error:
			args[i] = printable.Line(arg.Error())
		case fmt.Stringer:
			args[i] = printable.Line(arg.String())
		default:
			if v := reflect.ValueOf(arg); v.Kind() == reflect.String {
				args[i] = printable.Line(v.String())
			}
		}
	}
	fmt.Fprintf(w, format, args...)
}
