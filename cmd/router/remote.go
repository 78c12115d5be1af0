package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/deltarouter/deltarouter/pkg/api"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// remote is what the commands that talk to a running router have in common.
type remote struct {
	config, api, output string
	formats             []string // of output; nil: table and json

	client         *api.Client
	stdout, stderr io.Writer
}

func (r *remote) flags(flags *flag.FlagSet) {
	flags.StringVar(&r.config, "config", "", "")
	flags.StringVar(&r.api, "api", "", "")
	flags.StringVar(&r.output, "o", "table", "")
}

// connect finds the router.
func (r *remote) connect() error {
	if r.formats == nil {
		r.formats = []string{"table", "json"}
	}
	if last := len(r.formats) - 1; !slices.Contains(r.formats, r.output) {
		return fmt.Errorf("-o is %s or %s, not %q", strings.Join(r.formats[:last], ", "), r.formats[last], r.output)
	}
	if r.api == "" {
		if r.config == "" {
			return errors.New("say which router: -config FILE or -api ADDR")
		}
		cfg, problems := config.Load(r.config)
		if cfg != nil {
			r.api = cfg.Listen.API // also if there are mistakes elsewhere: the variables of the router may not be set here
		}
		switch {
		case r.api != "":
		case len(problems) > 0:
			return problems
		default:
			return fmt.Errorf(`%s has no listen.api: add listen: {api: "127.0.0.1:8484"} and start the router anew`, r.config)
		}
	}
	r.client = api.NewClient(r.api)
	return nil
}

func (r *remote) json(value any) error {
	encoder := json.NewEncoder(r.stdout)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	return encoder.Encode(value)
}
