package sandboxtest

import (
	"net/url"
	"path/filepath"
	"testing"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/deltarouter/deltarouter/test/tcpproxy"
)

// Proxy forwards TCP connections to the API server of a sandbox, until it is set to block or
// refuse. It affects only its own clients, so it may be used with the shared sandbox.
type Proxy struct {
	*tcpproxy.Proxy

	kubeconfig string
}

// Proxy starts a proxy that ends with the test.
func (s *Sandbox) Proxy(tb testing.TB) *Proxy {
	tb.Helper()
	return before(tb, s.RESTConfig().Host, s.Kubeconfig())
}

// before starts a proxy before the server of a URL, for the users of a kubeconfig.
func before(tb testing.TB, server, kubeconfig string) *Proxy {
	tb.Helper()
	target, err := url.Parse(server)
	if err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	p := &Proxy{tcpproxy.Start(tb, target.Host), filepath.Join(tb.TempDir(), "kubeconfig-proxy")}
	if err := p.writeKubeconfig(kubeconfig); err != nil {
		tb.Fatalf("sandboxtest: %v", err)
	}
	return p
}

// writeKubeconfig copies a kubeconfig with the proxy as the server.
func (p *Proxy) writeKubeconfig(from string) error {
	cfg, err := clientcmd.LoadFromFile(from)
	if err != nil {
		return err
	}
	for _, cluster := range cfg.Clusters {
		cluster.Server = "https://" + p.Addr()
	}
	return clientcmd.WriteToFile(*cfg, p.kubeconfig)
}

// Kubeconfig is the path of the administrator's kubeconfig for the proxy.
func (p *Proxy) Kubeconfig() string { return p.kubeconfig }

// RESTConfig returns the configuration of the kubeconfig.
func (p *Proxy) RESTConfig() *rest.Config { return restConfig(p.kubeconfig) }
