package host

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// network is a fake network with names and addresses. No address answers.
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
	// Guarantee: guest-grants, guest-http
	tests := []struct {
		name    string
		host    Grant
		api     string
		want    string // the addresses of the attempts
		refused bool
	}{
		{"a public name", Grant{Host: "public:443"}, "", "8.8.8.8:443", false},
		{"a private name", Grant{Host: "private:443"}, "", "", true},
		{"a private name, as allowed", Grant{Host: "private:443", Private: true}, "", "10.0.0.1:443", false},
		{"a name of this machine", Grant{Host: "local:80"}, "", "", true},
		{"a name of this machine, as allowed", Grant{Host: "local:80", Private: true}, "", "127.0.0.1:80", false},
		{"metadata", Grant{Host: "metadata:80", Private: true}, "", "", true},
		{"metadata of Amazon", Grant{Host: "amazon:80", Private: true}, "", "", true},
		{"metadata of Azure", Grant{Host: "azure:80", Private: true}, "", "", true},
		{"metadata by its address", Grant{Host: "169.254.169.254:80"}, "", "169.254.169.254:80", false},
		{"this machine by its address", Grant{Host: "[::1]:80"}, "", "[::1]:80", false},
		{"no address at all", Grant{Host: "0.0.0.0:80", Private: true}, "", "", true},
		{"a name of nothing", Grant{Host: "zero:80", Private: true}, "", "", true},
		{"of several, those that are allowed", Grant{Host: "mixed:443"}, "", "8.8.8.8:443 8.8.4.4:443", false},
		{"of several, all", Grant{Host: "mixed:443", Private: true}, "", "8.8.8.8:443 10.0.0.1:443 8.8.4.4:443", false},
		{"the API server by its address", Grant{Host: "10.0.0.1:443"}, "10.0.0.1:443", "10.0.0.1:443", false},
		{"the API server by another name", Grant{Host: "private:443", Private: true}, "10.0.0.1:443", "", true},
		{"the API server by its name", Grant{Host: "PRIVATE:443", Private: true}, "private:443", "10.0.0.1:443", false},
		{"the API server, which has a name, by another", Grant{Host: "public:443"}, "also-public:443", "", true},
		{"another port of it", Grant{Host: "public:444"}, "also-public:443", "8.8.8.8:444", false},
		{"an API server that nobody knows", Grant{Host: "public:443"}, "lost:443", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := network{names: map[string][]string{
				"public": {"8.8.8.8"}, "also-public": {"8.8.8.8"}, "private": {"10.0.0.1"}, "local": {"127.0.0.1"}, "metadata": {"169.254.169.254"}, "amazon": {"fd00:ec2::254"}, "azure": {"168.63.129.16"},
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

// TestRebinding: a name that resolves to another address at the next request is checked again.
func TestRebinding(t *testing.T) {
	// Guarantee: guest-http
	n := network{names: map[string][]string{"rebound": {"8.8.8.8"}}}
	dial := n.dialer("").to(Grant{Host: "rebound:443"})
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

// The API server gets another address. While its name does not resolve, its last address counts.
func TestAPIServerMoves(t *testing.T) {
	n := network{names: map[string][]string{"api": {"8.8.8.8"}, "host": {"8.8.8.8"}}}
	dial := n.dialer("api:443").to(Grant{Host: "host:443"})
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
		if _, err := d.to(Grant{Host: "host:443"})(ctx, "tcp", "host:443"); err == nil {
			t.Error("there is a connection")
		}
		if len(connected) != 2 || time.Since(start) != time.Second {
			t.Errorf("%v in %v", connected, time.Since(start))
		}
	})
}
