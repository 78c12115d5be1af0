package replica

import (
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/deltarouter/deltarouter/internal/checkpoint"
	"github.com/deltarouter/deltarouter/internal/fleet"
)

const (
	// partHeader names the part of a frame that a message has: term, number, part and parts.
	partHeader = "Dr-Frame"
	// partBytes is the size of the parts.
	partBytes = 256 << 10
	// maxParts limits the parts of a frame that a follower reads.
	maxParts = 300
)

// parts returns a frame as messages, signed with keys.
func parts(keys *fleet.Keys, subject string, f *checkpoint.Frame) []*nats.Msg {
	text := f.Append(make([]byte, 0, len(f.Ops)+128))
	n := (len(text) + partBytes - 1) / partBytes
	messages := make([]*nats.Msg, 0, n)
	for i := range n {
		place, data := fmt.Sprintf("%d.%d.%d.%d", f.Term, f.Number, i, n), text[i*partBytes:min((i+1)*partBytes, len(text))]
		m := &nats.Msg{Subject: subject, Data: data, Header: nats.Header{partHeader: {place}}}
		if mac := keys.Sign(fleet.PurposeFrame, subject, place, data); mac != "" {
			m.Header[fleet.MACHeader] = []string{mac}
		}
		messages = append(messages, m)
	}
	return messages
}

// assembly puts the parts of a frame together. The parts of one frame follow each other; a frame
// whose leader ended in between stays incomplete.
type assembly struct {
	at       checkpoint.Position
	next, of int
	text     []byte
}

// add takes the next message. It returns the frame that the message completes, if any: a part whose
// frame has no beginning is left out.
func (a *assembly) add(header string, data []byte) (f *checkpoint.Frame, err error) {
	var at checkpoint.Position
	var part, of int
	if _, err := fmt.Sscanf(header, "%d.%d.%d.%d", &at.Term, &at.Number, &part, &of); err != nil || of < 1 || of > maxParts || part < 0 || part >= of || len(data) > partBytes {
		return nil, fmt.Errorf("%w: it is not the part of a frame", checkpoint.ErrFrameDamaged)
	}
	if part == 0 {
		*a = assembly{at: at, of: of}
	}
	if a.at != at || a.of != of || a.next != part {
		*a = assembly{} // the frames behind it do not follow, unless the file has this one
		return nil, nil //nolint:nilnil // as said
	}
	// A frame of one part, as nearly all are, is not copied.
	a.next++
	if of == 1 {
		a.text = data
	} else {
		a.text = append(a.text, data...)
	}
	if a.next < of {
		return nil, nil //nolint:nilnil // more parts follow
	}
	text := a.text
	*a = assembly{}
	decoded, err := checkpoint.DecodeFrame(text)
	if err == nil && decoded.Position != at {
		err = fmt.Errorf("%w: it is %v", checkpoint.ErrFrameDamaged, decoded.Position)
	}
	if err != nil {
		return nil, fmt.Errorf("%v: %w", at, err)
	}
	return &decoded, nil
}
