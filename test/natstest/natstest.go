// Package natstest starts real NATS servers with JetStream as processes, alone or as a cluster, for
// tests that kill and pause them. The servers end with the test, or with its process.
package natstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/test/tcpproxy"
)

const (
	// patience limits each wait. A successful test does not wait so long.
	patience = 2 * time.Minute
	// poll is the time between two looks at a server.
	poll = 20 * time.Millisecond
)

// Config describes servers. The zero value is a single server without users and limits.
type Config struct {
	Servers    int           // 1, the default, or 3 for a cluster
	Users      []User        // none: no authentication
	MaxStore   int64         // JetStream's bytes on disk per server; 0: 1 GiB
	SyncAlways bool          // write to the disk before each answer
	More       string        // further lines of the configuration file, such as tls and authorization
	Version    string        // of the servers, such as 2.12.0; empty: that of go.mod
	Options    []nats.Option // of the connections of the test
}

// User is a user of the servers. Publish and Subscribe are the permitted subjects; if both are
// empty, everything is permitted.
type User struct {
	Name, Password     string
	Publish, Subscribe []string
}

// Cluster is one or several servers.
type Cluster struct {
	Servers []*Server

	config Config
	ports  *ports
}

// Start starts servers and waits until they are ready. They end with the test, which shows the ends
// of their logs if it fails.
func Start(tb testing.TB, cfg Config) *Cluster {
	tb.Helper()
	c, err := Launch(tb.TempDir(), cfg)
	if err != nil {
		tb.Fatalf("natstest: %v", err)
	}
	tb.Cleanup(func() {
		c.Close()
		if tb.Failed() {
			tb.Logf("natstest: %s", c.Logs())
		}
	})
	return c
}

// Launch is Start without a test: the caller must call Close. Stores and logs are in dir.
func Launch(dir string, cfg Config) (*Cluster, error) {
	bin, err := binary(cfg.Version)
	if err != nil {
		return nil, err
	}
	c := &Cluster{config: cfg}
	if c.ports, err = reserve(3 * max(cfg.Servers, 1)); err != nil {
		return nil, err
	}
	for i := range max(cfg.Servers, 1) {
		s := &Server{Name: "s" + strconv.Itoa(i), bin: bin, dir: filepath.Join(dir, "s"+strconv.Itoa(i)), ports: c.ports.numbers[3*i : 3*i+3]}
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		if err = errors.Join(os.MkdirAll(s.dir, 0o700), c.write(s, cfg)); err != nil {
			break
		}
		if err = s.start(); err != nil {
			break
		}
	}
	if err == nil {
		err = c.Wait()
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%w\n%s", err, c.Logs())
	}
	return c, nil
}

func (c *Cluster) write(s *Server, cfg Config) error {
	return os.WriteFile(s.file(), []byte(c.text(s, cfg)), 0o600)
}

// Reload changes the configuration of the running servers, except for their number, and keeps all
// connections that it permits.
func (c *Cluster) Reload(cfg Config) error {
	for _, s := range c.Servers {
		if err := c.write(s, cfg); err != nil {
			return err
		}
		s.Signal(syscall.SIGHUP)
	}
	return nil
}

// Replace kills the servers, and starts them with another configuration and version, and the same
// ports and files. Their number remains.
func (c *Cluster) Replace(cfg Config) error {
	bin, err := binary(cfg.Version)
	for _, s := range c.Servers {
		s.Kill()
		s.bin = bin
		err = errors.Join(err, c.write(s, cfg))
	}
	for _, s := range c.Servers {
		if err == nil {
			err = s.start()
		}
	}
	return cmp.Or(err, c.Wait())
}

// Close kills all servers.
func (c *Cluster) Close() {
	for _, s := range c.Servers {
		s.Kill()
	}
	c.ports.release()
}

// Logs returns the ends of the servers' logs.
func (c *Cluster) Logs() string {
	var b strings.Builder
	for _, s := range c.Servers {
		fmt.Fprintf(&b, "end of the log of %s:\n%s\n", s.Name, s.Log())
	}
	return b.String()
}

// URL returns the addresses of all servers, separated by commas.
func (c *Cluster) URL() string { return strings.Join(c.URLs(), ",") }

// URLs returns the addresses of all servers.
func (c *Cluster) URLs() (all []string) {
	for _, s := range c.Servers {
		all = append(all, "nats://"+s.Addr())
	}
	return all
}

// Proxy starts a proxy for each server, and returns them with the URL of all. Servers do not tell
// clients the addresses of other servers, so a client with this URL uses the proxies only.
func (c *Cluster) Proxy(tb testing.TB) (proxies []*tcpproxy.Proxy, url string) {
	tb.Helper()
	var urls []string
	for _, s := range c.Servers {
		p := tcpproxy.Start(tb, s.Addr())
		proxies, urls = append(proxies, p), append(urls, "nats://"+p.Addr())
	}
	return proxies, strings.Join(urls, ",")
}

// Connect returns a connection of its own, as the first user, that knows all servers and reconnects
// for ever. It leaves a paused server after a few seconds. It ends with the test.
func (c *Cluster) Connect(tb testing.TB, options ...nats.Option) (*nats.Conn, jetstream.JetStream) {
	tb.Helper()
	options = append([]nats.Option{
		nats.Name(tb.Name()), nats.MaxReconnects(-1), nats.ReconnectWait(poll), nats.ReconnectJitter(poll, poll), nats.Timeout(2 * time.Second),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(1),
	}, options...)
	if users := c.config.Users; len(users) > 0 {
		options = append([]nats.Option{nats.UserInfo(users[0].Name, users[0].Password)}, options...)
	}
	options = append(options, c.config.Options...)
	conn, err := nats.Connect(c.URL(), options...)
	if err != nil {
		tb.Fatalf("natstest: %v", err)
	}
	tb.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		tb.Fatalf("natstest: %v", err)
	}
	return conn, js
}

// WaitReady waits until all running servers agree on a leader and have all streams and consumers.
func (c *Cluster) WaitReady(tb testing.TB) {
	tb.Helper()
	if err := c.Wait(); err != nil {
		tb.Fatalf("natstest: %v", err)
	}
}

// Wait is WaitReady without a test.
func (c *Cluster) Wait() error {
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	deadline := time.Now().Add(patience)
	for _, s := range c.Servers {
		for s.Running() {
			err := s.ready(client, c.others(s))
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				return fmt.Errorf("%s is not ready after %v: %w", s.Name, patience, err)
			}
			time.Sleep(poll)
		}
	}
	for _, s := range c.Servers {
		if s.Crashed() {
			return fmt.Errorf("%s has ended", s.Name)
		}
	}
	return nil
}

// others returns the names of the other running servers.
func (c *Cluster) others(than *Server) (names []string) {
	for _, s := range c.Servers {
		if s != than && s.Running() {
			names = append(names, s.Name)
		}
	}
	return names
}

// Leader waits until a stream has a leader, and returns this server.
func (c *Cluster) Leader(tb testing.TB, js jetstream.JetStream, stream string) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	for {
		s, err := js.Stream(ctx, stream)
		if err == nil {
			if len(c.Servers) == 1 {
				return c.Servers[0]
			}
			for _, server := range c.Servers {
				if server.Name == s.CachedInfo().Cluster.Leader {
					return server
				}
			}
		}
		if ctx.Err() != nil {
			tb.Fatalf("natstest: stream %s has no leader: %v", stream, err)
		}
		time.Sleep(poll)
	}
}
