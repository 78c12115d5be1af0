package cli

import (
	"fmt"

	"github.com/deltarouter/deltarouter/internal/inspect/api"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Remote has the shared flags of the commands that talk to a running router: its address and the
// format of the output. Connect sets Client.
type Remote struct {
	Config, Addr, Output string
	Formats              []string // of output, the default first; nil: table and json

	Client *api.Client
	Streams
}

// AddFlags adds the flags that find the router and choose the output.
func (r *Remote) AddFlags(f *Flags) {
	r.AddAddress(f)
	if r.Formats == nil {
		r.Formats = []string{"table", "json"}
	}
	f.ChoiceVar(&r.Output, "o", r.Formats[0], r.Formats, "the format of the output")
}

// AddAddress adds the flags that find the router.
func (r *Remote) AddAddress(f *Flags) {
	f.ConfigVar(&r.Config, "the configuration of the running router, for its listen.api")
	f.StringVar(&r.Addr, "api", "", "`ADDR` listen.api itself, as in 127.0.0.1:8484 or unix:/run/router/api.sock")
}

// Connect finds the router.
func (r *Remote) Connect() error {
	if r.Addr == "" {
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
			return Invalid(fmt.Errorf(`%s has no listen.api: add listen: {api: "127.0.0.1:8484"} and restart the router`, r.Config))
		}
	}
	r.Client = api.NewClient(r.Addr)
	return nil
}
