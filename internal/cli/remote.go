package cli

import (
	"context"
	"fmt"

	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/remote"
	"github.com/deltarouter/deltarouter/pkg/config"
)

// Remote has the shared flags of the commands that talk to a running router: the way to it and the
// format of the output. Connect sets Client.
type Remote struct {
	Config, Output string
	Formats        []string // of output, the default first; nil: table and json

	To     remote.Options
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
	f.Group("Which router", func() {
		f.ConfigVar(&r.Config, "the configuration of the running router, for its listen.api")
		AddRouter(f, &r.To, "listen.api itself")
	})
}

// AddRouter adds the flags that find a router without its configuration.
func AddRouter(f *Flags, to *remote.Options, address string) {
	f.StringVar(&to.Addr, "api", "", "`ADDR` "+address+", as in 127.0.0.1:8484, unix:/run/router/api.sock or https://router:8443")
	f.StringVar(&to.CA, "ca", "", "`FILE` for -api https://…: the certificate authorities of the router, in PEM; by default those of the system")
	f.StringVar(&to.Pod, "in", "", "`[NAMESPACE/]POD` the pod of the router, reached through the API server")
	f.StringVar(&to.Kubeconfig, "kubeconfig", "", "`FILE` for -in, and for the credentials with -api: by default that of kubectl")
	f.StringVar(&to.Context, "context", "", "`NAME` the context of the kubeconfig")
}

// Given reports whether the command line names the router by its address or pod.
func (r *Remote) Given() bool { return r.To != remote.Options{} }

// Connect finds the router. A tunnel to it stays open until ctx is done.
func (r *Remote) Connect(ctx context.Context) error {
	if err := r.To.Check(); err != nil {
		return Mistakef("%s", err.Error())
	}
	if r.To.Addr == "" && r.To.Pod == "" {
		cfg, problems := config.Load(r.Config, config.Policy{})
		switch {
		case cfg != nil && cfg.Listen.API != "":
			// also if there are mistakes elsewhere: the variables of the router may not be set here
			return r.ConnectTo(ctx, cfg)
		case len(problems) > 0:
			return problems
		}
		return Invalid(fmt.Errorf(`%s has no listen.api: add listen: {api: "127.0.0.1:8484"} and restart the router; for a router in a cluster, name its pod with -in`, r.Config))
	}
	var err error
	r.Client, err = remote.Open(ctx, r.To)
	return err
}

// SayStandby says that the last answer is that of a standby, and how old its state is.
func (r *Remote) SayStandby() {
	if m := r.Client.Standby(); m != nil {
		Printf(r.Err, "%s\n", m)
	}
}

// ConnectTo finds the router of a configuration, which has listen.api.
func (r *Remote) ConnectTo(ctx context.Context, cfg *config.Config) (err error) {
	r.To.Addr = cfg.Listen.API
	if cert := cfg.Listen.TLS.Cert; !cert.IsZero() {
		if r.To.Certificate, err = cert.Value(); err != nil {
			return fmt.Errorf("listen.tls.cert: %w", err)
		}
	}
	r.Client, err = remote.Open(ctx, r.To)
	return err
}
