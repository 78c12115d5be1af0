package work

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/fleet/fence"
)

const (
	// partHeader is the number of a part of a large message and their count: 2/3. Parts follow each
	// other in the stream.
	partHeader = "Dr-Part"
	// maxPart is the size of a part: servers permit messages of 1 MiB by default.
	maxPart = 900 << 10
	// maxParts bounds the parts of a message, which are one batch.
	maxParts = fence.HardMessages
	// roomForHeaders is the difference between a part and the server's limit for messages.
	roomForHeaders = 16 << 10
)

// split makes messages of a body: one, or its parts, which the publisher keeps in one batch. limit
// is the server's limit for a message; 0: unknown. id is unique among the messages of a batch.
func split(subject string, body []byte, limit int64, id string) []*nats.Msg {
	size := maxPart
	if limit > 0 {
		size = max(min(size, int(limit)-roomForHeaders), 1<<10)
	}
	if len(body) <= size {
		return []*nats.Msg{{Subject: subject, Data: body, Header: nats.Header{}}}
	}
	count := (len(body) + size - 1) / size
	parts := make([]*nats.Msg, 0, count)
	for i := range count {
		header := nats.Header{partHeader: {fmt.Sprintf("%d/%d", i+1, count)}, fence.PartHeader: {id}}
		parts = append(parts, &nats.Msg{Subject: subject, Data: body[i*size : min(len(body), (i+1)*size)], Header: header})
	}
	return parts
}

// Assembly puts the parts of the messages of a partition together again, in the order of the
// stream. The zero value is ready.
type Assembly struct {
	body []byte
	next int // number of the next part; 0: no message is open
	of   int
}

// Add adds a message of the stream. It returns a body when all its parts are there; until then
// body is nil. A part without its predecessor is an error, after which the assembly is empty.
func (a *Assembly) Add(header nats.Header, data []byte) (body []byte, err error) {
	text := header.Get(partHeader)
	if text == "" {
		if a.next != 0 {
			err = fmt.Errorf("%w: part %d of %d is missing", ErrFormat, a.next, a.of)
		}
		*a = Assembly{}
		return data, err
	}
	part, count, _ := strings.Cut(text, "/")
	n, err1 := strconv.Atoi(part)
	of, err2 := strconv.Atoi(count)
	if err1 != nil || err2 != nil || n < 1 || n > of || of > maxParts || n != max(a.next, 1) || n > 1 && of != a.of ||
		len(a.body)+len(data) > fence.HardBytes {
		*a = Assembly{}
		return nil, fmt.Errorf("%w: part %.20q does not follow", ErrFormat, text)
	}
	a.body, a.next, a.of = append(a.body, data...), n+1, of
	if n < of {
		return nil, nil
	}
	body = a.body
	*a = Assembly{}
	return body, nil
}

// Open reports whether parts of a message are there, and others are missing.
func (a *Assembly) Open() bool { return a.next != 0 }
