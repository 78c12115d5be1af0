package cli

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/internal/inspect/api"
	"github.com/deltarouter/deltarouter/internal/manifest"
	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Remote is what the commands that talk to a running router have in common: which router, and how
// to print. Connect sets Client.
type Remote struct {
	Config, Addr, Output string
	Formats              []string // of output; nil: table and json

	Client         *api.Client
	Stdout, Stderr io.Writer
}

// AddFlags adds the flags that find the router and choose the output.
func (r *Remote) AddFlags(flags *flag.FlagSet) {
	flags.StringVar(&r.Config, "config", "", "")
	flags.StringVar(&r.Addr, "api", "", "")
	flags.StringVar(&r.Output, "o", "table", "")
}

// Count is a number of things, each of which has this name.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Connect finds the router.
func (r *Remote) Connect() error {
	if r.Formats == nil {
		r.Formats = []string{"table", "json"}
	}
	if last := len(r.Formats) - 1; !slices.Contains(r.Formats, r.Output) {
		return fmt.Errorf("-o is %s or %s, not %q", strings.Join(r.Formats[:last], ", "), r.Formats[last], r.Output)
	}
	if r.Addr == "" {
		if r.Config == "" {
			return errors.New("say which router: -config FILE or -api ADDR")
		}
		cfg, problems := config.Load(r.Config, config.Policy{})
		if cfg != nil {
			// also if there are mistakes elsewhere: the variables of the router may not be set here
			r.Addr = cfg.Listen.API
		}
		switch {
		case r.Addr != "":
		case len(problems) > 0:
			return problems
		default:
			return fmt.Errorf(`%s has no listen.api: add listen: {api: "127.0.0.1:8484"} and start the router anew`, r.Config)
		}
	}
	r.Client = api.NewClient(r.Addr)
	return nil
}

// PrintJSON prints a value as indented JSON.
func (r *Remote) PrintJSON(value any) error {
	encoder := json.NewEncoder(r.Stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}

// PrintYAML prints a value, or the JSON of one, as YAML.
func (r *Remote) PrintYAML(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if text, err = manifest.ToYAML(text); err == nil {
		_, err = r.Stdout.Write(text)
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
