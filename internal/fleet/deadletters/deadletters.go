// Package deadletters brings the dead letters of workers to the leader: a worker writes them to a
// stream, and the leader imports them into its state file, where `router dlq` finds them beside its
// own.
package deadletters

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
	"github.com/deltarouter/deltarouter/pkg/event"
)

const (
	// formatHeader is the version of the body: a compressed checkpoint.EncodeLetter.
	formatHeader = "Dr-Format"
	format       = "1"
	// maxBody is the maximum size of a body; NATS takes 1 MiB with the headers by default.
	maxBody = 900 << 10
	// maxLetter bounds the memory for one decoded dead letter.
	maxLetter = 80 << 20
	// attempt is the time limit of one request.
	attempt = 5 * time.Second
)

// Write writes a dead letter to the stream. When it returns nil the servers have stored it. After
// an error the caller repeats the call with the same id, which the stream stores once in two
// minutes. Of a letter that is too large for a message, the previous state of its object is left
// out, and if it is still too large, all but the identity of the object.
func Write(ctx context.Context, conn *fleet.Conn, id string, letter checkpoint.Letter) error {
	body, err := encode(letter)
	if err != nil {
		return fmt.Errorf("dead letter of route %q: %w", letter.Route, err)
	}
	ctx, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	message := &nats.Msg{Subject: conn.Names.DeadLetter(letter.Route), Data: body, Header: nats.Header{formatHeader: {format}}}
	if mac := conn.Workers.Sign(fleet.PurposeLetter, message.Subject, "", body); mac != "" {
		message.Header[fleet.MACHeader] = []string{mac}
	}
	if _, err := conn.JS.PublishMsg(ctx, message, jetstream.WithMsgID(id), jetstream.WithExpectStream(conn.Names.DeadLetters())); err != nil {
		return fmt.Errorf("dead letter of route %q cannot be written to NATS: %w", letter.Route, err)
	}
	return nil
}

// encode returns the body of a message.
func encode(letter checkpoint.Letter) ([]byte, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer encoder.Close()
	for _, smaller := range []func(*event.Delta){whole, whole, withoutOld, identityOnly} {
		short := *letter.Delta
		smaller(&short)
		letter.Delta = &short
		if body := encoder.EncodeAll(checkpoint.EncodeLetter(&letter), nil); len(body) <= maxBody {
			return body, nil
		}
		letter.Call = nil
	}
	return nil, errors.New("it is too large without its objects")
}

// whole leaves the delta as it is.
func whole(*event.Delta) {}

// withoutOld removes the previous state, unless the delta has no other.
func withoutOld(d *event.Delta) {
	if d.New != nil {
		d.Old = nil
	}
}

// identityOnly leaves the identity of the object, and an event without its data.
func identityOnly(d *event.Delta) {
	for _, o := range []**event.Object{&d.Old, &d.New} {
		if *o != nil {
			*o = event.Identity((*o).Resource(), (*o).Key(), (*o).UID())
		}
	}
	if d.Event != nil {
		e := *d.Event
		e.Data = []byte("null")
		d.Event = &e
	}
}

// decoder decodes bodies.
type decoder struct{ zstd *zstd.Decoder }

func newDecoder() (*decoder, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxLetter))
	return &decoder{z}, err
}

func (d *decoder) close() { d.zstd.Close() }

func (d *decoder) decode(m *nats.Msg) (checkpoint.Letter, error) {
	if found := m.Header.Get(formatHeader); found != format {
		return checkpoint.Letter{}, fmt.Errorf("its format is %q: a newer version has written it", found)
	}
	payload, err := d.zstd.DecodeAll(m.Data, nil)
	if err != nil {
		return checkpoint.Letter{}, err
	}
	return checkpoint.DecodeLetter(payload)
}
