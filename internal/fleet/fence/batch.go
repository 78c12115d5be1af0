package fence

import (
	"fmt"

	"github.com/nats-io/nats.go"
)

// PartHeader marks the messages that Split keeps together, like the parts of a large one: all
// consecutive messages with the same value.
const PartHeader = "Dr-Parts"

// Split cuts messages into batches of at most MaxMessages and MaxBytes, in order. Messages with
// the same PartHeader stay in one batch, which may be larger then.
func Split(messages []*nats.Msg) [][]*nats.Msg {
	var batches [][]*nats.Msg
	start, bytes := 0, 0
	for i := 0; i < len(messages); {
		end, size := i+1, messages[i].Size()
		for end < len(messages) && together(messages[i], messages[end]) {
			size += messages[end].Size()
			end++
		}
		if i > start && (end-start > MaxMessages || bytes+size > MaxBytes) {
			batches = append(batches, messages[start:i])
			start, bytes = i, 0
		}
		bytes += size
		i = end
	}
	if start < len(messages) {
		batches = append(batches, messages[start:])
	}
	return batches
}

func together(a, b *nats.Msg) bool {
	part := a.Header.Get(PartHeader)
	return part != "" && b.Header.Get(PartHeader) == part
}

// fits checks the hard bounds, so that the server is not asked in vain.
func fits(messages []*nats.Msg) error {
	bytes := 0
	for _, m := range messages {
		bytes += m.Size()
	}
	if len(messages) == 0 {
		return &RefusedError{Text: "it is empty"}
	}
	if len(messages) > HardMessages {
		return &RefusedError{Text: fmt.Sprintf("it has %d messages, the maximum is %d", len(messages), HardMessages)}
	}
	if bytes > HardBytes {
		return &RefusedError{Text: fmt.Sprintf("it has %d bytes, the maximum is %d", bytes, HardBytes)}
	}
	return nil
}
