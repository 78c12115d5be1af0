package fleet_test

import (
	"crypto/rand"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest/embedded"
)

// TestProbe: each condition of the servers that the fleet cannot work with is reported with its
// remedy.
func TestProbe(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		change func(*server.Options)
		fleet  func(*config.Fleet)
		want   string
	}{
		{"no JetStream", func(o *server.Options) { o.JetStream = false }, nil, "JetStream is not enabled for the account of the router: enable it"},
		{"small messages", func(o *server.Options) { o.MaxPayload = 1 << 19 }, nil, "accepts messages of at most 524288 bytes: set its max_payload to 1048576 or more"},
		{"no cluster", nil, func(f *config.Fleet) { f.Replicas = 3 }, "is not in a cluster, and fleet.replicas is 3: set it to 1, or name the servers of a cluster"},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := embedded.Start(t, test.change)
			f := section(t, "{servers: ["+s.ClientURL()+"]}")
			if test.fleet != nil {
				test.fleet(f)
			}
			found, err := fleet.Probe(t.Context(), f, fleet.Member)
			if must.Succeed(t, err); len(found.Mistakes) != 1 || !strings.HasSuffix(found.Mistakes[0], test.want) {
				t.Errorf("got %q, want %q", found.Mistakes, test.want)
			}
		})
	}
}

// TestProbeLimits: the limits of the account are compared with the need.
func TestProbeLimits(t *testing.T) {
	t.Parallel()
	s := embedded.Start(t, nil)
	limits := func(l map[string]server.JetStreamAccountLimits) {
		t.Helper()
		account, err := s.LookupAccount(server.DEFAULT_GLOBAL_ACCOUNT)
		must.Succeed(t, err)
		must.Succeed(t, account.UpdateJetStreamLimits(l))
	}
	l := server.JetStreamAccountLimits{MaxMemory: -1, MaxStore: 1 << 20, MaxStreams: 3, MaxConsumers: -1, MaxAckPending: -1, MemoryMaxStreamBytes: -1, StoreMaxStreamBytes: -1, MaxBytesRequired: true}
	limits(map[string]server.JetStreamAccountLimits{"": l})
	found := probe(t, "{servers: ["+s.ClientURL()+"]}")
	want := "the account has 0 streams of at most 3, and the fleet needs 7 more: raise the limit\n" +
		"the account requires a maximum size of each stream (max_bytes), which the router does not set: make the streams with it, or lift the requirement\n" +
		"the account may store 1048576 bytes, and the streams of the fleet need more than 268435456: raise the limit"
	if got := strings.Join(found.Mistakes, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	l.MaxStreams, l.MaxBytesRequired, l.MaxStore = -1, false, -1
	limits(map[string]server.JetStreamAccountLimits{"": l})
	c := connect(t, "{servers: ["+s.ClientURL()+"]}")
	must.Succeed(t, c.Ensure(t.Context()))
	l.MaxStore = 1 << 20
	limits(map[string]server.JetStreamAccountLimits{"": l})
	for range 9 {
		data := make([]byte, 100_000) // random, because the stream compresses it
		_, _ = rand.Read(data)
		_, err := c.JS.Publish(t.Context(), c.Names.DeadLetter("r"), data)
		must.Succeed(t, err)
	}
	if found = probe(t, "{servers: ["+s.ClientURL()+"]}"); len(found.Warnings) != 1 || !strings.Contains(found.Warnings[0], "of 1048576 bytes of its storage: raise the limit before it is full") {
		t.Errorf("got %q", found)
	}
}

// TestUnreachable: the error of servers that cannot be used has the reason.
func TestUnreachable(t *testing.T) {
	t.Parallel()
	s := embedded.Start(t, func(o *server.Options) { o.Username, o.Password = "router", "s3cret" })
	url := s.ClientURL()
	for _, test := range []struct{ name, nats, want string }{
		{"no file", "{servers: [" + url + "], credentials: {creds: {file: /none}}}", "fleet.nats.credentials.creds: secret file /none cannot be read"},
		{"wrong password", "{servers: [" + url + "], credentials: {user: router, password: wr0ng}}", "Authorization Violation"},
		{"no TLS", "{servers: [" + url + "], tls: {serverName: x}}", "secure connection not available"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := fleet.Probe(t.Context(), section(t, test.nats), fleet.Member)
			if must.Fail(t, err, test.want); strings.Contains(err.Error(), "wr0ng") {
				t.Error(err)
			}
		})
	}
	embedded.Stop(s)
	_, err := fleet.Probe(t.Context(), section(t, "{servers: ["+url+"]}"), fleet.Member)
	must.Fail(t, err, "connection refused")
}

// TestRenewedCredentials: a connection reads a changed secret when it connects again.
func TestRenewedCredentials(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	must.Succeed(t, os.WriteFile(file, []byte("old\n"), 0o600))
	s := embedded.Start(t, func(o *server.Options) { o.Username, o.Password = "router", "old" })
	url, port := s.ClientURL(), s.Addr().(*net.TCPAddr).Port
	c := connect(t, fmt.Sprintf("{servers: [%q], credentials: {user: router, password: {file: %q}}}", url, file))
	must.Succeed(t, c.Ready(t.Context()))
	lost := c.NATS.StatusChanged(nats.RECONNECTING)
	embedded.Stop(s)
	<-lost
	must.Succeed(t, os.WriteFile(file, []byte("renewed\n"), 0o600))
	embedded.Start(t, func(o *server.Options) { o.Port, o.Username, o.Password = port, "router", "renewed" })
	must.Succeed(t, c.Ready(t.Context()))
}
