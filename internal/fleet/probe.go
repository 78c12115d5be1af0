package fleet

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/pkg/config"
)

const (
	// minVersion is the oldest version of NATS servers that a fleet works with: 2.12.0 refuses a
	// rollup within an atomic batch.
	minVersion = "2.12.1"
	// minPayload is the size of the largest message.
	minPayload = 1 << 20
	// probeTimeout bounds the probe.
	probeTimeout = 20 * time.Second
	// full is the share of the storage, in percent, above which Probe warns.
	full = 80
)

// Report is the result of [Probe].
type Report struct {
	Mistakes []string // the fleet does not work with them
	Warnings []string
}

// Probe finds whether the servers have what the fleet needs: the version, the limits, the settings
// of existing streams, and the permissions of the roles. It stores nothing. The error says that no
// server can be reached.
func Probe(ctx context.Context, cfg *config.Fleet, roles ...Role) (found Report, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, probeTimeout, fmt.Errorf("no answer within %s", probeTimeout))
	defer cancel()
	d := &dialer{ctx: ctx}
	c, err := connect(ctx, cfg, roles[0], "deltarouter check", slog.New(slog.DiscardHandler), nats.RetryOnFailedConnect(false), nats.NoReconnect(), nats.SetCustomDialer(d))
	if errors.Is(err, nats.ErrNoServers) && d.err != nil {
		err = d.err // it has the reason
	}
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	missing, err := c.missing(ctx, c.Names.of(roles))
	if err != nil {
		return found, err
	}
	if len(missing) > 0 {
		found.Mistakes = append(found.Mistakes, "the router lacks permissions in NATS: "+strings.Join(missing, ", "))
		return found, nil // the requests below would have no answer
	}
	if err := c.Supported(); err != nil {
		found.Mistakes = append(found.Mistakes, err.Error())
		return found, nil
	}
	if !slices.Contains(roles, Member) {
		return found, nil // a worker makes no streams
	}
	err = c.compare(ctx, &found)
	return found, err
}

// dialer keeps the error of the last failed connection.
type dialer struct {
	ctx context.Context // nats.go calls Dial without a context
	err error
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (conn net.Conn, err error) {
	if conn, err = (&net.Dialer{Timeout: connectTimeout}).DialContext(d.ctx, network, address); err != nil {
		d.err = err
	}
	return conn, err
}

// Supported returns the reason why the fleet cannot work with the connected server: it is too old,
// or refuses large messages.
func (c *Conn) Supported() error {
	version, server := c.NATS.ConnectedServerVersion(), c.NATS.ConnectedUrlRedacted()
	if version == "" {
		return nil // not connected: the next request says so
	}
	if older(version, minVersion) {
		return fmt.Errorf("the NATS server %s has version %s: a fleet needs %s or later on every server", server, version, minVersion)
	}
	if most := c.NATS.MaxPayload(); most < minPayload {
		return fmt.Errorf("the NATS server %s accepts messages of at most %d bytes: set its max_payload to %d or more", server, most, minPayload)
	}
	return nil
}

// older reports whether a version as 2.12.1 is older than another one.
func older(version, than string) bool {
	a, _, _ := strings.Cut(version, "-")
	have, want := strings.Split(a, "."), strings.Split(than, ".")
	for i := range want {
		if i >= len(have) {
			return true
		}
		x, _ := strconv.Atoi(have[i])
		y, _ := strconv.Atoi(want[i])
		if x != y {
			return x < y
		}
	}
	return false
}

// compare adds the findings about the account and the streams.
func (c *Conn) compare(ctx context.Context, found *Report) error {
	account, err := c.JS.AccountInfo(ctx)
	if errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		found.Mistakes = append(found.Mistakes, "JetStream is not enabled for the account of the router: enable it")
		return nil
	}
	if err != nil {
		return fmt.Errorf("JetStream does not answer: %w", err)
	}
	// The router makes missing streams itself, so they count only for the limits of the account.
	missing := 0
	for _, want := range c.streams() {
		have, err := c.JS.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			missing++
			continue
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", want.Name, err)
		}
		fatal, other := split(differences(want, have.CachedInfo().Config))
		if len(fatal) > 0 {
			found.Mistakes = append(found.Mistakes, describe(want.Name, fatal)+"; "+remedy)
		}
		if len(other) > 0 {
			found.Warnings = append(found.Warnings, describe(want.Name, other)+"; "+remedy)
		}
		// A member with other keys would take the frames of the fleet for foreign ones.
		if want.Name == c.Names.Cuts() {
			if err := c.sameKeys(ctx, have, found); err != nil {
				return err
			}
		}
	}
	c.limits(account, missing, found)
	return nil
}

// sameKeys adds the finding that the last leader had other keys than this configuration. No leader
// is no finding.
func (c *Conn) sameKeys(ctx context.Context, cuts jetstream.Stream, found *Report) error {
	record, err := cuts.GetLastMsgForSubject(ctx, c.Names.CutsLead())
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("the lead record in stream %s: %w", c.Names.Cuts(), err)
	}
	mac := record.Header.Get(MACHeader)
	if err := c.Members.Verify(mac, PurposeLead, record.Subject, "", record.Data); err != nil {
		found.Warnings = append(found.Warnings, fmt.Sprintf("keys: the leader would not be followed, because of its lead record in stream %s: %v", c.Names.Cuts(), err))
	} else if c.Members == nil && mac != "" {
		found.Warnings = append(found.Warnings, "keys: the leader signs its records, and this configuration has no keys.members: set those of the leader")
	}
	return nil
}

// limits adds the findings about the limits of the account. missing is the number of streams that
// the leader will make.
func (c *Conn) limits(account *jetstream.AccountInfo, missing int, found *Report) {
	report := func(format string, args ...any) {
		found.Mistakes = append(found.Mistakes, fmt.Sprintf(format, args...))
	}
	l := account.Limits
	if l.MaxStreams > 0 && account.Streams+missing > l.MaxStreams {
		report("the account has %d streams of at most %d, and the fleet needs %d more: raise the limit", account.Streams, l.MaxStreams, missing)
	}
	if missing > 0 && l.MaxBytesRequired {
		report("the account requires a maximum size of each stream (max_bytes), which the router does not set: make the streams with it, or lift the requirement")
	}
	if missing > 0 && l.MaxStore > 0 && l.MaxStore <= maxWork {
		report("the account may store %d bytes, and the streams of the fleet need more than %d: raise the limit", l.MaxStore, maxWork)
	}
	if missing > 0 && c.replicas > 1 && c.NATS.ConnectedClusterName() == "" {
		report("the NATS server %s is not in a cluster, and fleet.replicas is %d: set it to 1, or name the servers of a cluster", c.NATS.ConnectedUrlRedacted(), c.replicas)
	}
	if l.MaxStore > 0 && account.Store > uint64(l.MaxStore)/100*full {
		found.Warnings = append(found.Warnings, fmt.Sprintf("the account uses %d of %d bytes of its storage: raise the limit before it is full", account.Store, l.MaxStore))
	}
}

// missing returns the permissions that the router lacks. It publishes a message to a subject of
// each, see harmless.
func (c *Conn) missing(ctx context.Context, needed []permission) (all []string, err error) {
	token := "probe-" + nats.NewInbox()[len(nats.InboxPrefix):]
	for _, p := range needed {
		subject := strings.NewReplacer("*", token, ">", token).Replace(p.subject)
		verb, violation := "publish", "publish to "
		if p.subscribe {
			verb, violation, subject = "subscribe", "subscription to ", p.subject
			sub, err := c.NATS.SubscribeSync(subject)
			if err != nil {
				return nil, err
			}
			defer func() { _ = sub.Unsubscribe() }()
		} else if err := c.NATS.PublishMsg(harmless(subject, token)); err != nil {
			return nil, err
		}
		if err := c.NATS.FlushWithContext(ctx); err != nil {
			return nil, fmt.Errorf("NATS does not answer: %w", err)
		}
		if refused := c.NATS.LastError(); errors.Is(refused, nats.ErrPermissionViolation) && strings.Contains(strings.ToLower(refused.Error()), violation+strconv.Quote(strings.ToLower(subject))) {
			all = append(all, verb+" "+p.subject)
		}
	}
	return all, nil
}

// harmless returns a message that changes nothing, on any subject: no stream has the expected name,
// no server has the required level, and no message has the subject of the body, which is a filter
// in requests to purge a stream. JetStream purges the whole stream if the body is not JSON.
func harmless(subject, token string) *nats.Msg {
	return &nats.Msg{
		Subject: subject, Data: []byte(`{"filter":"` + token + `"}`),
		Header: nats.Header{jetstream.ExpectedStreamHeader: {token}, "Nats-Required-Api-Level": {"1000000000"}},
	}
}
