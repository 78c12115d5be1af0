package router_test

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/deltarouter/deltarouter/internal/router"
	"github.com/deltarouter/deltarouter/internal/router/worker"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/fakekind"
	"github.com/deltarouter/deltarouter/test/logged"
	"github.com/deltarouter/deltarouter/test/must"
)

const inFleet = `fleet: {name: test, nats: {servers: ["nats://127.0.0.1:1"]}}
state: {dir: /nonexistent}
`

// TestProbesWhileCompiling: the probes are answered from the moment on at which the configuration
// is parsed, also on a member of a fleet and on a worker. A mistake that is found later is reported
// as before.
func TestProbesWhileCompiling(t *testing.T) {
	// Guarantee: start-probes
	for name, tt := range map[string]struct {
		config string
		worker bool
	}{
		"router": {}, "member": {config: inFleet}, "worker": {config: inFleet, worker: true},
	} {
		t.Run(name, func(t *testing.T) {
			compiling, compile := make(chan struct{}), make(chan struct{})
			begun := sync.OnceFunc(func() { close(compiling) }) // two plans are made when schemas are asked for again
			kinds := components(&journal{})
			kinds.Sinks = []plugins.SinkKind{fakekind.Sink{Definition: fakekind.Define("fake"), CheckFunc: func(node config.Node) config.Problems {
				begun()
				<-compile
				return config.Problems{node.Problemf("it has a mistake")}
			}}}
			file := write(t, fmt.Sprintf(reloadable, "test", kubeconfig(t))+tt.config+`sources: {pods: {resource: v1/pods}}
sinks: {one: {fake: {}}}
routes: [{name: a, from: pods, to: one}]
`)
			log := &logged.Buffer{}
			logger := slog.New(slog.NewTextHandler(log, nil))
			ended := make(chan error, 1)
			go func() {
				if tt.worker {
					ended <- worker.Run(t.Context(), worker.Options{Config: file, Components: kinds, Log: logger, Stdout: io.Discard, Version: "v0"})
					return
				}
				ended <- router.Run(t.Context(), router.Options{Config: file, Components: kinds, Log: logger, Stdout: io.Discard, Version: "v0"})
			}()
			select {
			case <-compiling:
			case err := <-ended:
				t.Fatal(err)
			}
			address := regexp.MustCompile(`for=probes address=(\S+)`).FindStringSubmatch(log.String())
			if address == nil {
				close(compile)
				t.Fatalf("nothing listens: %v\n%s", <-ended, log)
			}
			url := "http://" + address[1]
			if code, body := get(t, url+"/healthz"); code != http.StatusOK {
				t.Errorf("/healthz: %d %s", code, body)
			}
			want := "starting: the configuration is being compiled\n[-]start: not ok\nnot ready: waiting for start\n"
			if code, body := get(t, url+"/readyz"); code != http.StatusServiceUnavailable || body != want {
				t.Errorf("/readyz: %d %s", code, body)
			}
			if code, body := get(t, url+"/metrics"); code != http.StatusOK || !strings.Contains(body, `deltarouter_build_info{version="v0"} 1`) {
				t.Errorf("/metrics: %d %s", code, body)
			}
			close(compile)
			var problems config.Problems
			if err := <-ended; !errors.As(err, &problems) || len(problems) != 1 || !strings.Contains(err.Error(), "sinks.one.fake: it has a mistake") {
				t.Error(err)
			}
			_, err := (&http.Client{}).Get(url + "/healthz")
			if err == nil {
				t.Error("the listener is still open")
			}
		})
	}
}

// TestProbesInUse: a mistake of the configuration is reported rather than an address that is in
// use.
func TestProbesInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must.Succeed(t, err)
	t.Cleanup(func() { must.Report(t, taken.Close()) })
	text := strings.Replace(fmt.Sprintf(running, kubeconfig(t), ""), "127.0.0.1:0", taken.Addr().String(), 1)
	for mistake, want := range map[string]string{"": "listen.probes: cannot listen on", "nowhere()": "undeclared reference to 'nowhere'"} {
		config := text
		if mistake != "" {
			config = strings.Replace(text, `list("pods")`, mistake, 1)
		}
		err := router.Run(t.Context(), router.Options{
			Config: write(t, config), Components: components(&journal{}), Log: slog.New(slog.DiscardHandler), Stdout: io.Discard,
		})
		must.Fail(t, err, want)
	}
}
