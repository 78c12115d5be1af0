package api

import (
	"log/slog"
	"net"
	"strconv"
	"strings"
	"testing"
)

// client is a connection of a client at an address.
type client struct {
	net.Conn
	address string
}

func (c *client) RemoteAddr() net.Addr { return addr(c.address) }

type addr string

func (addr) Network() string  { return "tcp" }
func (a addr) String() string { return string(a) }

// TestAdmit opens connections at addresses, of which some send a request, and says which one is
// closed for the last.
func TestAdmit(t *testing.T) {
	// Guarantee: probes-bounded
	for name, tt := range map[string]struct {
		open    string // addresses in order; with !: it sent a request
		surplus string // the number of the connection that is closed for the last; empty: none
	}{
		"room":                               {"a a b c", ""},
		"the oldest of the address":          {"b a a a a", "1"},
		"the oldest without a request":       {"b a! a a a", "2"},
		"all have sent one":                  {"a! a! a! a", "3"},
		"the address with most":              {"b a a a b c d", "1"},
		"in all, with requests":              {"a! a! a! b! b! b! c", "6"},
		"in all, an address without request": {"a! a! b c d! e! f", "2"},
	} {
		t.Run(name, func(t *testing.T) {
			c := newConnections(6, 3, slog.New(slog.DiscardHandler))
			var conns []net.Conn
			closed := ""
			for i, address := range strings.Fields(tt.open) {
				address, sent := strings.CutSuffix(address, "!")
				conn := &client{address: address + ":" + strconv.Itoa(40000+i)}
				conns = append(conns, conn)
				surplus := c.admit(conn)
				if sent {
					c.setWaiting(conn, false)
				}
				for n := range conns {
					if surplus != nil && conns[n] == surplus {
						closed += strconv.Itoa(n)
					}
				}
			}
			if closed != tt.surplus {
				t.Errorf("closed %q, want %q", closed, tt.surplus)
			}
		})
	}
}
