// Package lookup answers look-ups of the handlers on workers from the caches of the leader, by
// requests over NATS.
//
// An answer is not older than the deltas that the handler has in hand. The leader that has sent
// them has applied them; a new leader may be behind for a moment, and says so.
package lookup

import (
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/pkg/event"
)

// Request is a look-up of a handler.
type Request struct {
	Handler   string `json:"handler"`
	Source    string `json:"source"`
	Index     string `json:"index,omitempty"`
	Value     string `json:"value,omitempty"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"` // not empty: a single object
	Count     bool   `json:"count,omitempty"`
	Needs     []Need `json:"needs,omitempty"`
}

// Need is a state of an object that the answer must not be older than.
type Need struct {
	Source          string `json:"source"`
	Namespace       string `json:"namespace,omitempty"`
	Name            string `json:"name"`
	ResourceVersion string `json:"resourceVersion"`
	Deleted         bool   `json:"deleted,omitempty"`
}

// Answer is the result of a look-up.
type Answer struct {
	Objects []*event.Object
	Count   int
}

// Errors of a [Lookups].
var (
	// ErrBehind says that the caches are older than the request needs.
	ErrBehind = errors.New("the leader has not seen yet the objects that the handler has in hand")
	// ErrDenied says that the configuration of the leader does not grant the look-up.
	ErrDenied = errors.New("the configuration of the leader does not grant the handler this look-up")
	// ErrTooLarge says that the objects have more than 8 MiB.
	ErrTooLarge = errors.New("the answer has more than 8 MiB of objects")
)

const (
	// MaxAnswer is the maximum size of the objects of an answer, as in a local look-up.
	MaxAnswer = 8 << 20
	// maxRequest bounds a request: 4 KiB of the guest, and the identities of a batch.
	maxRequest = 512 << 10
	// partSize is the size of a message of an answer. NATS takes 1 MiB with the headers by default.
	partSize = 512 << 10
	// patience is the time limit of a look-up. A guest may have less.
	patience = 5 * time.Second
	// again is the minimum delay of a delta whose look-up has failed.
	again = time.Second
)

// Headers of the messages of an answer.
const (
	statusHeader = "Dr-Status"
	fromHeader   = "Dr-From" // identifies the answer: two members may believe that they lead
	partHeader   = "Dr-Part" // the number of the message, from 0
	partsHeader  = "Dr-Parts"
)

// The statuses. Each has an error.
const (
	statusOK     = "ok"
	statusFailed = "failed"
)

var statuses = map[string]error{"behind": ErrBehind, "denied": ErrDenied, "too large": ErrTooLarge}

// statusOf returns the status of an error.
func statusOf(err error) string {
	if err == nil {
		return statusOK
	}
	for status, e := range statuses {
		if errors.Is(err, e) {
			return status
		}
	}
	return statusFailed
}

// body is an answer before compression.
type body struct {
	Count    int               `json:"count"`
	Resource *event.Resource   `json:"resource,omitempty"` // of all objects
	Objects  []json.RawMessage `json:"objects,omitempty"`
}

// parts returns the messages of an answer.
func parts(a *Answer, err error, from string) []*nats.Msg {
	var compressed []byte
	if err == nil {
		compressed, err = compress(a)
	}
	header := func(part, of int) nats.Header {
		return nats.Header{statusHeader: {statusOf(err)}, fromHeader: {from}, partHeader: {strconv.Itoa(part)}, partsHeader: {strconv.Itoa(of)}}
	}
	if err != nil {
		return []*nats.Msg{{Header: header(0, 1), Data: []byte(err.Error())}}
	}
	count := max(1, (len(compressed)+partSize-1)/partSize)
	messages := make([]*nats.Msg, count)
	for i := range messages {
		messages[i] = &nats.Msg{Header: header(i, count), Data: compressed[i*partSize : min((i+1)*partSize, len(compressed))]}
	}
	return messages
}

func compress(a *Answer) ([]byte, error) {
	b, size := body{Count: a.Count}, 0
	for _, o := range a.Objects {
		if size += len(o.JSON()); size > MaxAnswer {
			return nil, ErrTooLarge
		}
		b.Resource, b.Objects = o.Resource(), append(b.Objects, json.RawMessage(o.JSON()))
	}
	text, err := json.Marshal(b)
	if err != nil {
		return nil, err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer encoder.Close()
	return encoder.EncodeAll(text, nil), nil
}

func decompress(compressed []byte) (*Answer, error) {
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(2*MaxAnswer))
	if err != nil {
		return nil, err
	}
	defer decoder.Close()
	text, err := decoder.DecodeAll(compressed, nil)
	if err != nil {
		return nil, err
	}
	var b body
	if err := json.Unmarshal(text, &b); err != nil {
		return nil, err
	}
	a := &Answer{Count: b.Count}
	for _, object := range b.Objects {
		o, err := event.ParseObject(b.Resource, string(object))
		if err != nil {
			return nil, err
		}
		a.Objects = append(a.Objects, o)
	}
	return a, nil
}
