package values

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/internal/kv"
	"github.com/deltarouter/deltarouter/internal/timer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
	"github.com/deltarouter/deltarouter/test/must"
)

// record is a message of the stream.
type record struct {
	jetstream.Msg

	subject string
	data    []byte
	seq     uint64
}

func (r record) Subject() string { return r.subject }
func (r record) Data() []byte    { return r.data }
func (r record) Metadata() (*jetstream.MsgMetadata, error) {
	return &jetstream.MsgMetadata{Sequence: jetstream.SequencePair{Stream: r.seq}}, nil
}

// TestTornCommit shows that a commit is not applied without a value that a later commit has
// replaced before it was received. It is applied with the later one.
func TestTornCommit(t *testing.T) {
	t.Parallel()
	s := newStore(&Values{conn: &fleet.Conn{Names: fleet.NamesOf("f")}, clock: timer.Real(), log: slog.New(slog.DiscardHandler)}, "h")
	value := func(seq uint64, key, value string) record {
		m := s.message(plugins.KVWrite{Key: key, Value: []byte(value)})
		return record{subject: m.Subject, data: m.Data, seq: seq}
	}
	end := func(seq uint64, count int) record {
		body, err := json.Marshal(head{Count: count})
		must.Succeed(t, err)
		return record{subject: s.mirror.subject, data: body, seq: seq}
	}
	for _, step := range []struct {
		of          record
		seq         uint64 // of the mirror afterwards
		left, right string
	}{
		{of: value(1, "left", "1")},
		{of: value(2, "right", "1")},
		{of: end(3, 2), seq: 3, left: "1", right: "1"},
		// its other half, 5, was replaced by 8
		{of: value(4, "left", "2"), seq: 3, left: "1", right: "1"},
		{of: end(6, 2), seq: 3, left: "1", right: "1"},
		{of: value(8, "right", "3"), seq: 3, left: "1", right: "1"},
		{of: end(9, 1), seq: 9, left: "2", right: "3"},
	} {
		must.Succeed(t, s.mirror.take(step.of))
		left, _ := s.Get("left")
		right, _ := s.Get("right")
		if s.mirror.seq != step.seq || string(left) != step.left || string(right) != step.right {
			t.Errorf("after %d: head %d, %q and %q", step.of.seq, s.mirror.seq, left, right)
		}
	}
}

// FuzzParse shows that parse does not panic, and decodes what message has encoded.
func FuzzParse(f *testing.F) {
	s := newStore(&Values{conn: &fleet.Conn{Names: fleet.NamesOf("f")}, clock: timer.Real(), log: slog.New(slog.DiscardHandler)}, "h")
	f.Add(s.message(plugins.KVWrite{Key: "k", Value: []byte("v")}).Data)
	f.Add(s.message(plugins.KVWrite{Key: "k", Delete: true}).Data)
	f.Fuzz(func(t *testing.T, body []byte) {
		change, err := parse(body, 1)
		if err != nil {
			return
		}
		again, err := parse(s.message(change.KVWrite).Data, 1)
		must.Succeed(t, err)
		if !same(change, again) {
			t.Errorf("%v became %v", change, again)
		}
	})
}

func same(a, b kv.Change) bool {
	return a.Key == b.Key && string(a.Value) == string(b.Value) && a.Delete == b.Delete && a.Expires.Equal(b.Expires)
}
