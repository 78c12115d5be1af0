package fleet_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nkeys"

	"github.com/deltarouter/deltarouter/test/effort"
	"github.com/deltarouter/deltarouter/test/fleet"
	"github.com/deltarouter/deltarouter/test/must"
	"github.com/deltarouter/deltarouter/test/natstest"
)

// without waits until the status of the leader has all texts about a fault of NATS, and makes
// changes: the leader delivers those of the route without workers, and keeps the others.
func (c *crew) without(texts ...string) {
	c.t.Helper()
	c.status(c.leader(), texts...)
	c.wait("the metric of the fault", func() error {
		if n := c.leader().Metric("deltarouter_fleet_nats_problems"); n == 0 {
			return errors.New("it is 0")
		}
		return nil
	})
	c.change(5)
	c.delivered("near")
	c.status(c.leader())
	if c.missing("far") != 5 {
		c.t.Errorf("the workers have delivered some of 5 changes in spite of the fault: %d are missing", c.missing("far"))
	}
}

// logged waits until the log of a process has a text.
func (c *crew) logged(n *fleet.Node, text string) {
	c.t.Helper()
	c.wait(fmt.Sprintf("%q in the log of %s", text, n.Name), func() error {
		if n.Count(text) == 0 {
			return errors.New("it is not there")
		}
		return nil
	})
}

// TestFullStorage: the servers have no room, not even for the leases of workers.
func TestFullStorage(t *testing.T) {
	// Guarantee: fleet-nats-faults
	t.Parallel()
	c := newCrew(t, 1, natstest.Config{}, nil)
	c.alter("DR_test_WORK", func(s *jetstream.StreamConfig) { s.MaxBytes = 1 << 20 })
	must.Succeed(t, c.nats.Replace(natstest.Config{MaxStore: 16 << 20}))
	c.well()
	filler, err := c.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "FILLER", Subjects: []string{"filler"}})
	must.Succeed(t, err)
	data := make([]byte, 32<<10)
	_, _ = rand.Read(data)
	for err == nil || errors.Is(err, context.DeadlineExceeded) {
		_, err = c.js.Publish(t.Context(), "filler", data)
	}
	must.Fail(t, err, "insufficient")
	c.without("fleet/nats: stream DR_test_CUTS takes nothing: ", "max_file_store")
	must.Succeed(t, filler.Purge(t.Context()))
	c.well()
}

// account is an account of servers that trust an operator.
type account struct {
	config natstest.Config
	key    nkeys.KeyPair
}

func newAccount(t *testing.T) *account {
	t.Helper()
	operator, operatorKey := keys(t, nkeys.CreateOperator)
	key, public := keys(t, nkeys.CreateAccount)
	_, system := keys(t, nkeys.CreateAccount)
	claims := jwt.NewAccountClaims(public)
	claims.Limits.DiskStorage, claims.Limits.MemoryStorage = jwt.NoLimit, jwt.NoLimit
	sign := func(c jwt.Claims) string {
		text, err := c.Encode(operator)
		must.Succeed(t, err)
		return text
	}
	a := &account{key: key}
	a.config = natstest.Config{
		Options: []nats.Option{nats.UserCredentialBytes(a.creds(t, time.Hour))},
		More: fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {%s: %s, %s: %s}\n",
			sign(jwt.NewOperatorClaims(operatorKey)), system, public, sign(claims), system, sign(jwt.NewAccountClaims(system))),
	}
	return a
}

func keys(t *testing.T, create func() (nkeys.KeyPair, error)) (nkeys.KeyPair, string) {
	t.Helper()
	pair, err := create()
	must.Succeed(t, err)
	public, err := pair.PublicKey()
	must.Succeed(t, err)
	return pair, public
}

// creds returns the content of a .creds file of a new user.
func (a *account) creds(t *testing.T, life time.Duration) []byte {
	t.Helper()
	pair, public := keys(t, nkeys.CreateUser)
	claims := jwt.NewUserClaims(public)
	claims.Expires = time.Now().Add(life).Unix()
	text, err := claims.Encode(a.key)
	must.Succeed(t, err)
	seed, err := pair.Seed()
	must.Succeed(t, err)
	file, err := jwt.FormatUserConfig(text, seed)
	must.Succeed(t, err)
	return file
}

// replace replaces a file atomically.
func replace(t *testing.T, file string, text []byte) {
	t.Helper()
	must.Succeed(t, errors.Join(os.WriteFile(file+".new", text, 0o600), os.Rename(file+".new", file)))
}

// TestExpiredCredentials: the .creds file of all processes expires, and is renewed.
func TestExpiredCredentials(t *testing.T) {
	// Guarantee: fleet-nats-faults
	t.Parallel()
	a, file := newAccount(t), filepath.Join(t.TempDir(), "router.creds")
	replace(t, file, a.creds(t, time.Hour))
	c := newCrew(t, 2, a.config, func(_ *crew, o *fleet.Options) { o.Credentials = fmt.Sprintf("creds: {file: %q}", file) })
	replace(t, file, a.creds(t, 2*time.Second))
	must.Succeed(t, c.nats.Replace(a.config)) // so that the processes use it, as long as it lasts
	c.without("fleet/nats: NATS cannot be reached", "the credentials (fleet.nats.credentials) have expired at 20", "renew them: changed files are read at the next attempt")
	replace(t, file, a.creds(t, time.Hour))
	c.well()
}

// TestRotatedPassword: the password of the router changes, first in the servers and then in the
// file.
func TestRotatedPassword(t *testing.T) {
	// Guarantee: fleet-nats-faults
	t.Parallel()
	file := filepath.Join(t.TempDir(), "password")
	users := func(password string) natstest.Config {
		return natstest.Config{Users: []natstest.User{{Name: "test", Password: "test"}, {Name: "router", Password: password}}}
	}
	replace(t, file, []byte("first\n"))
	c := newCrew(t, 1, users("first"), func(_ *crew, o *fleet.Options) {
		o.Credentials = fmt.Sprintf("user: router, password: {file: %q}", file)
	})
	must.Succeed(t, c.nats.Reload(users("second")))
	c.without("the servers do not know the user, or its secret (fleet.nats.credentials): changed files are read")
	replace(t, file, []byte("second\n"))
	c.well()
}

// TestOlderServers: servers of versions that lack what a fleet needs. No member leads with them,
// and a leader whose servers are replaced by them goes on as without NATS.
func TestOlderServers(t *testing.T) {
	// Guarantee: fleet-nats-faults
	t.Parallel()
	for _, version := range []string{"2.11.10", "2.12.0"} {
		t.Run(version, func(t *testing.T) {
			older := natstest.Config{Version: version}
			reason := "has version " + version + ": a fleet needs 2.12.1 or later on every server"
			fresh := prepareCrew(t, 1, older, nil)
			must.Succeed(t, fresh.fleet.Start())
			fresh.logged(fresh.leader(), "this member could not lead")
			fresh.logged(fresh.leader(), reason)
			if out, err := fresh.leader().Control("check", "-connect"); err == nil || !strings.Contains(out, reason) {
				t.Errorf("%v: %s", err, out)
			}
			must.Succeed(t, fresh.nats.Replace(natstest.Config{}))
			fresh.logged(fresh.leader(), "fleet: this member leads") // it tries again
			fresh.ready()
			fresh.fleet.Close()

			c := newCrew(t, 1, natstest.Config{}, nil)
			must.Succeed(t, c.nats.Replace(older))
			c.without(reason)
			must.Succeed(t, c.nats.Replace(natstest.Config{}))
			c.well()
		})
	}
}

// TestNoQuorum: two of three servers are gone, as long as the leader needs to notice it, and at the
// effort soak for ten minutes.
func TestNoQuorum(t *testing.T) {
	// Guarantee: fleet-nats-faults
	t.Parallel()
	c := newCrew(t, 2, natstest.Config{Servers: 3}, nil)
	outage := time.Duration(effort.Rounds(0, 0, 10)) * time.Minute
	for _, s := range c.nats.Servers[:2] {
		s.Kill()
	}
	began := time.Now()
	c.without("fleet/nats: ", "a majority of the NATS servers must run")
	for time.Since(began) < outage { // the leader keeps what comes meanwhile, and says so
		c.change(1)
		c.delivered("near")
		c.status(c.leader(), "fleet/nats: ", "sinks/fleet/workers: unavailable since ")
	}
	t.Logf("no majority for %v, %d changes", time.Since(began).Round(time.Second), len(c.made))
	for _, s := range c.nats.Servers[:2] {
		must.Succeed(t, s.Restart())
	}
	c.well()
}
