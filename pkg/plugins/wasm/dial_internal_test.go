package wasm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/pkg/timer"
)

func TestKindOf(t *testing.T) {
	for kind, addresses := range map[addressKind]string{
		public:    "8.8.8.8 172.32.0.1 100.128.0.1 2606:4700::1111 ::ffff:8.8.8.8 64:ff9b::808:808 169.253.0.1",
		private:   "127.0.0.1 127.9.9.9 ::1 10.0.0.1 172.16.0.1 172.31.255.255 192.168.1.1 fd00::1 100.64.0.1 198.18.0.1 192.0.0.8 fec0::1 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:a00:1::1 64:ff9b::7f00:1",
		linkLocal: "169.254.169.254 169.254.0.1 fe80::1 fe80::1%eth0 ::ffff:169.254.169.254 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::",
		noAddress: "0.0.0.0 :: 0.1.2.3 255.255.255.255 240.0.0.1 224.0.0.1 ff02::1 64:ff9b::",
	} {
		for text := range strings.FieldsSeq(addresses) {
			if got := kindOf(netip.MustParseAddr(text)); got != kind {
				t.Errorf("%s is of kind %d, want %d", text, got, kind)
			}
		}
	}
	if kindOf(netip.Addr{}) != noAddress {
		t.Error("no address is one")
	}
}

// network is names and their addresses; nobody is there.
type network struct {
	names     map[string][]string
	resolved  map[string]int
	connected []string
}

var errNobody = errors.New("nobody is there")

func (n *network) dialer(apiServer string) *dialer {
	d := newDialer(apiServer)
	n.resolved = make(map[string]int)
	d.resolve = func(_ context.Context, host string) (all []netip.Addr, err error) {
		n.resolved[host]++
		if n.names[host] == nil {
			return nil, &net.DNSError{Err: "no such host", Name: host}
		}
		for _, text := range n.names[host] {
			all = append(all, netip.MustParseAddr(text))
		}
		return all, nil
	}
	d.connect = func(_ context.Context, to netip.AddrPort) (net.Conn, error) {
		n.connected = append(n.connected, to.String())
		return nil, errNobody
	}
	return d
}

func TestDial(t *testing.T) {
	tests := []struct {
		name    string
		host    HTTPHost
		api     string
		want    string // what was connected to
		refused bool
	}{
		{"a public name", HTTPHost{Host: "public:443"}, "", "8.8.8.8:443", false},
		{"a private name", HTTPHost{Host: "private:443"}, "", "", true},
		{"a private name, as allowed", HTTPHost{Host: "private:443", Private: true}, "", "10.0.0.1:443", false},
		{"a name of this machine", HTTPHost{Host: "local:80"}, "", "", true},
		{"a name of this machine, as allowed", HTTPHost{Host: "local:80", Private: true}, "", "127.0.0.1:80", false},
		{"metadata", HTTPHost{Host: "metadata:80", Private: true}, "", "", true},
		{"metadata by its address", HTTPHost{Host: "169.254.169.254:80"}, "", "169.254.169.254:80", false},
		{"this machine by its address", HTTPHost{Host: "[::1]:80"}, "", "[::1]:80", false},
		{"no address at all", HTTPHost{Host: "0.0.0.0:80", Private: true}, "", "", true},
		{"a name of nothing", HTTPHost{Host: "zero:80", Private: true}, "", "", true},
		{"of several, those that are allowed", HTTPHost{Host: "mixed:443"}, "", "8.8.8.8:443 8.8.4.4:443", false},
		{"of several, all", HTTPHost{Host: "mixed:443", Private: true}, "", "8.8.8.8:443 10.0.0.1:443 8.8.4.4:443", false},
		{"the API server by its address", HTTPHost{Host: "10.0.0.1:443"}, "10.0.0.1:443", "10.0.0.1:443", false},
		{"the API server by another name", HTTPHost{Host: "private:443", Private: true}, "10.0.0.1:443", "", true},
		{"the API server by its name", HTTPHost{Host: "PRIVATE:443", Private: true}, "private:443", "10.0.0.1:443", false},
		{"the API server, which has a name, by another", HTTPHost{Host: "public:443"}, "also-public:443", "", true},
		{"another port of it", HTTPHost{Host: "public:444"}, "also-public:443", "8.8.8.8:444", false},
		{"an API server that nobody knows", HTTPHost{Host: "public:443"}, "lost:443", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := network{names: map[string][]string{
				"public": {"8.8.8.8"}, "also-public": {"8.8.8.8"}, "private": {"10.0.0.1"}, "local": {"127.0.0.1"}, "metadata": {"169.254.169.254"},
				"mixed": {"8.8.8.8", "10.0.0.1", "8.8.4.4"}, "zero": {"0.0.0.0"},
			}}
			address := strings.ToLower(tt.host.Host)
			conn, err := n.dialer(tt.api).to(tt.host)(t.Context(), "tcp", address)
			if conn != nil || err == nil {
				t.Fatal("there is a connection to nobody")
			}
			if got := strings.Join(n.connected, " "); got != tt.want || errors.Is(err, errAddress) != tt.refused {
				t.Errorf("connected to %q, want %q; error %v", got, tt.want, err)
			}
			for name, times := range n.resolved {
				if times != 1 && !strings.Contains(tt.api, name) {
					t.Errorf("%s was resolved %d times: what was looked at is not what is connected to", name, times)
				}
			}
		})
	}
}

// TestRebinding: a name that leads elsewhere by the next request is looked at again.
func TestRebinding(t *testing.T) {
	n := network{names: map[string][]string{"rebound": {"8.8.8.8"}}}
	dial := n.dialer("").to(HTTPHost{Host: "rebound:443"})
	if _, err := dial(t.Context(), "tcp", "rebound:443"); !errors.Is(err, errNobody) {
		t.Error(err)
	}
	n.names["rebound"] = []string{"127.0.0.1"}
	if _, err := dial(t.Context(), "tcp", "rebound:443"); !errors.Is(err, errAddress) {
		t.Error(err)
	}
	if got := strings.Join(n.connected, " "); got != "8.8.8.8:443" {
		t.Errorf("connected to %s", got)
	}
}

// The API server moves; while its name cannot be resolved it is taken to be where it was.
func TestAPIServerMoves(t *testing.T) {
	n := network{names: map[string][]string{"api": {"8.8.8.8"}, "host": {"8.8.8.8"}}}
	dial := n.dialer("api:443").to(HTTPHost{Host: "host:443"})
	for _, step := range []struct {
		api     []string
		refused bool
	}{
		{[]string{"8.8.8.8"}, true},
		{nil, true},
		{[]string{"8.8.4.4"}, false},
		{nil, false},
	} {
		if n.names["api"] = step.api; step.api == nil {
			delete(n.names, "api")
		}
		if _, err := dial(t.Context(), "tcp", "host:443"); errors.Is(err, errAddress) != step.refused {
			t.Errorf("API server at %v: %v", step.api, err)
		}
	}
}

// An address that does not answer leaves time for the next.
func TestDialSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := network{names: map[string][]string{"host": {"8.8.8.8", "8.8.4.4"}}}
		d := n.dialer("")
		connected := []string{}
		d.connect = func(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
			connected = append(connected, to.String())
			<-ctx.Done()
			return nil, ctx.Err()
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := d.to(HTTPHost{Host: "host:443"})(ctx, "tcp", "host:443"); err == nil {
			t.Error("there is a connection")
		}
		if len(connected) != 2 || time.Since(start) != time.Second {
			t.Errorf("%v in %v", connected, time.Since(start))
		}
	})
}

// TestRate: a host takes so many requests a second, of all guests together.
func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newHTTPClient([]HTTPHost{{Host: "host", Scheme: "http", Rate: 3}}, plugins.Env{Log: slog.New(slog.DiscardHandler)}, timer.Real())
		defer c.close()
		n := network{names: map[string][]string{"host": {"8.8.8.8"}}}
		d := n.dialer("")
		c.hosts["host:80"].client.Transport = roundTripper(func() error { _, err := d.to(HTTPHost{Host: "host"})(t.Context(), "tcp", "host:80"); return err })
		ask := func(want ...int32) {
			t.Helper()
			var got []int32
			for range want {
				_, status := c.do(t.Context(), `{"url":"http://HOST/"}`)
				got = append(got, status)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got, want)
			}
		}
		ask(0, 0, 0, -3, -3)
		time.Sleep(time.Second / 3)
		ask(-3)
		time.Sleep(time.Second / 100)
		ask(0, -3)
		time.Sleep(time.Hour)
		ask(0, 0, 0, -3)
		if len(n.connected) != 7 {
			t.Errorf("%d requests were made", len(n.connected))
		}
	})
}

// roundTripper makes no requests.
type roundTripper func() error

func (f roundTripper) RoundTrip(*http.Request) (*http.Response, error) { return nil, f() }
