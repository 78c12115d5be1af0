package fleet

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

const (
	monitorInterval = 5 * time.Second
	monitorTimeout  = 4 * time.Second
	// nearlyFull is the share of a limit, in percent, that counts as reached.
	nearlyFull = 98
)

// Problem is a fault of NATS that the leader has found. Text has the place, the reason and a
// remedy.
type Problem struct {
	Stream string // empty: it is about all of them
	Text   string
	// Unusable: the stream has settings with which it loses messages, or takes none.
	Unusable bool
}

// Health is the state of NATS at one time.
type Health struct {
	Problems []Problem
	Made     []string // streams that were gone and were made again
}

// Texts returns the texts of all problems.
func (l *Health) Texts() (all []string) {
	for _, p := range l.Problems {
		all = append(all, p.Text)
	}
	return all
}

// Unusable returns the reason why nothing must be published to a stream; empty: there is none.
func (l *Health) Unusable(stream string) string {
	for _, p := range l.Problems {
		if p.Unusable && p.Stream == stream {
			return p.Text
		}
	}
	return ""
}

// Monitor looks at the servers and the streams every few seconds until ctx is done, and reports
// their state. It makes streams again that are gone. The leader calls it, after [Conn.Ensure].
// refused returns the reason why the stream of the cuts has taken nothing for some time; empty: it
// does.
func (c *Conn) Monitor(ctx context.Context, refused func() string, report func(Health)) {
	tick := time.NewTicker(monitorInterval)
	defer tick.Stop()
	for said := ""; ; {
		looking, cancel := context.WithTimeout(ctx, monitorTimeout)
		found := c.check(looking)
		cancel()
		if ctx.Err() != nil {
			return
		}
		// The limits of the servers, and full disks, show in refused messages only.
		if why := refused(); why != "" && len(found.Problems) == 0 {
			found.Problems = append(found.Problems, Problem{Stream: c.Names.Cuts(), Text: "stream " + c.Names.Cuts() + " takes nothing: " + why})
		}
		said = c.tell(said, &found)
		report(found)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// tell logs a finding that differs from the one before.
func (c *Conn) tell(before string, found *Health) string {
	for _, name := range found.Made {
		c.log.Error("fleet: a stream was gone, and was made again without its messages", "stream", name, "lost", c.lost(name))
	}
	now := strings.Join(found.Texts(), "; ")
	switch now {
	case before:
	case "":
		c.log.Info("fleet: the problems of NATS are over")
	default:
		c.log.Warn("fleet: NATS has problems", "problems", now)
	}
	return now
}

// lost describes the loss of the messages of a stream, and the remedy.
func (c *Conn) lost(stream string) string {
	switch n := c.Names; stream {
	case n.Work():
		return "deltas that waited for workers; router resync -route ROUTE delivers the present state of all objects of a route"
	case n.Cuts(), "OBJ_" + n.Snapshots():
		return "nothing: the leader publishes its state again"
	case n.DeadLetters():
		return "dead letters of the last moments that the leader had not imported"
	case "KV_" + n.Values():
		return "the kv of handlers on workers, which begins without values"
	}
	return "nothing: the processes write it again"
}

// check looks at everything once.
func (c *Conn) check(ctx context.Context) (found Health) {
	add := func(p Problem) { found.Problems = append(found.Problems, p) }
	err := c.Trouble()
	if err == nil {
		err = c.Supported()
	}
	if err != nil {
		add(Problem{Text: err.Error()})
		return found
	}
	// A missing stream is made again; one with other settings is left to the administrator.
	for _, want := range c.streams() {
		have, err := c.JS.Stream(ctx, want.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			if have, err = c.JS.CreateStream(ctx, want); err == nil {
				found.Made = append(found.Made, want.Name)
			}
		}
		if err != nil {
			add(Problem{Stream: want.Name, Text: unanswered(want.Name, err)})
			return found // the others would wait as long
		}
		info := have.CachedInfo()
		if fatal, _ := split(differences(want, info.Config)); len(fatal) > 0 {
			add(Problem{Stream: want.Name, Text: describe(want.Name, fatal) + "; " + remedy, Unusable: true})
		} else if text := reached(info); text != "" {
			add(Problem{Stream: want.Name, Text: text})
		}
	}
	if text := c.account(ctx); text != "" {
		add(Problem{Text: text})
	}
	return found
}

// unanswered describes the failure of a request about a stream.
func unanswered(stream string, err error) string {
	if e, ok := errors.AsType[*jetstream.APIError](err); ok {
		return "stream " + stream + ": " + Explain(int(e.ErrorCode), e.Description)
	}
	return fmt.Sprintf("stream %s: JetStream does not answer (%v): a majority of the NATS servers must run, with JetStream and room on their disks", stream, err)
}

// reached describes the limit that a stream has reached; empty: it has room.
func reached(info *jetstream.StreamInfo) string {
	s, limits := info.State, info.Config
	if limits.Discard != jetstream.DiscardNew {
		return ""
	}
	for _, l := range []struct {
		name      string
		have, max int64
	}{
		{"max_msgs", int64(min(s.Msgs, 1<<62)), limits.MaxMsgs},
		{"max_bytes", int64(min(s.Bytes, 1<<62)), limits.MaxBytes},
	} {
		if l.max > 0 && l.have >= l.max-l.max*(100-nearlyFull)/100 {
			return fmt.Sprintf("stream %s is full: it has %d of %s %d; the router keeps what does not fit: raise the limit, or let the workers catch up",
				limits.Name, l.have, l.name, l.max)
		}
	}
	return ""
}

// account describes a limit of the account that is reached.
func (c *Conn) account(ctx context.Context) string {
	account, err := c.JS.AccountInfo(ctx)
	if err != nil {
		return "JetStream does not answer: " + err.Error()
	}
	if most := account.Limits.MaxStore; most > 0 && account.Store >= uint64(most)/100*nearlyFull {
		return fmt.Sprintf("the account of the router uses %d of %d bytes of its storage: raise the limit, or remove what else is stored", account.Store, most)
	}
	return ""
}

// The numbers of the errors of JetStream with a remedy.
const (
	accountFull     = 10002
	serverFull      = 10023
	memoryFull      = 10028
	storageFull     = 10047
	streamLimit     = 10077
	streamMissing   = 10059
	batchIncomplete = 10176
)

// Explain returns the text of an error of JetStream, with a remedy if one is known.
func Explain(code int, text string) string {
	hint := ""
	switch code {
	case serverFull, memoryFull, storageFull:
		hint = ": the storage of the NATS servers is full: raise max_file_store, or remove what else is stored"
	case accountFull:
		hint = ": the storage of the router's account is full: raise its limit, or remove what else is stored"
	case streamLimit:
		hint = ": the stream has reached its max_msgs or max_bytes: raise it, or let the workers catch up"
	case batchIncomplete: // for a moment also after a change of the leader of the stream
		hint = ": if it lasts, the disk of a NATS server is full: make room on it"
	case streamMissing:
		hint = ": the leader makes the stream again"
	}
	return fmt.Sprintf("%s (%d)%s", text, code, hint)
}
