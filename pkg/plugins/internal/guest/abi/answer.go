package abi

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/deltarouter/deltarouter/internal/printable"
	"github.com/deltarouter/deltarouter/internal/rawjson"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// answerSize is the size of a record of an answer.
const answerSize = 28

// Memory is the memory of a guest: [api.Memory], or a fake in tests.
type Memory interface {
	Read(offset, byteCount uint32) ([]byte, bool)
}

// ErrTooMuch is wrapped by the error of a batch whose answer is too long. A smaller batch may pass.
var ErrTooMuch = errors.New("the answer is too long")

// ErrMalformed is wrapped by errors about the form of an answer. The guest is replaced.
var ErrMalformed = errors.New("malformed answer")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// DecodeAnswer decodes the answer to a batch of n deltas from the guest's memory. The result does
// not refer to that memory. The error wraps ErrMalformed or ErrTooMuch. An invalid event fails only
// its delta.
func DecodeAnswer(mem Memory, ret uint64, n int, l *Limits) ([]plugins.Result, error) {
	ptr, size := uint32(ret>>32), uint32(ret)
	if ptr == 0 {
		return wholeBatch(size, n)
	}
	if int64(size) > int64(l.Output) {
		return nil, fmt.Errorf("%w: %d bytes, at most %d (limits.output)", ErrTooMuch, size, l.Output)
	}
	view, ok := mem.Read(ptr, size)
	if !ok {
		return nil, malformed("its %d bytes at %#x are not within the guest's memory", size, ptr)
	}
	return reader{answer(view), l}.results(n)
}

// wholeBatch decodes the answers 0 to 3: one verdict for all deltas.
func wholeBatch(verdict uint32, n int) ([]plugins.Result, error) {
	if verdict > uint32(plugins.Fail) {
		return nil, malformed("there is no verdict %d", verdict)
	}
	results := make([]plugins.Result, n)
	for i := range results {
		results[i] = judge(plugins.Verdict(verdict), 0, "")
	}
	return results, nil
}

// answer is the text of an answer, or a part of it.
type answer string

// reader decodes an answer within limits.
type reader struct {
	answer
	*Limits
}

func (a answer) u32(at int) uint32 { return binary.LittleEndian.Uint32([]byte(a[at : at+4])) }

// piece returns the part of the answer at an offset and with a length.
func (a answer) piece(at int) (answer, error) {
	off, n := uint64(a.u32(at)), uint64(a.u32(at+4))
	if n == 0 {
		return "", nil
	}
	if off+n > uint64(len(a)) {
		return "", malformed("%d bytes at offset %d are not within its %d bytes", n, off, len(a))
	}
	return a[off : off+n], nil
}

func (a reader) results(n int) ([]plugins.Result, error) {
	if len(a.answer) < 4 {
		return nil, malformed("%d bytes are too few", len(a.answer))
	}
	count := int64(a.u32(0))
	if count > int64(n) || 4+count*answerSize > int64(len(a.answer)) {
		return nil, malformed("%d records for %d deltas in %d bytes", count, n, len(a.answer))
	}
	results := make([]plugins.Result, n)
	seen := make([]bool, n)
	emitted := int64(0)
	for k := range int(count) {
		at := 4 + k*answerSize
		i := a.u32(at)
		if i >= uint32(n) || seen[i] {
			return nil, malformed("record %d is about delta %d of %d, or about one that was answered", k, i, n)
		}
		seen[i] = true
		// Parts may overlap, so an answer could represent many times its length.
		if emitted += int64(a.u32(at + 24)); emitted > int64(a.Output) && int(a.u32(at+24)) <= len(a.answer) {
			return nil, fmt.Errorf("%w: it refers to more than %d bytes of events (limits.output)", ErrTooMuch, a.Output)
		}
		r, err := a.record(at)
		if err != nil {
			return nil, fmt.Errorf("record %d: %w", k, err)
		}
		results[i] = r
	}
	return results, nil
}

// record decodes the record at an offset, except its idx.
func (a reader) record(at int) (plugins.Result, error) {
	verdict, events := plugins.Verdict(a.answer[at+4]), int(a.answer[at+6])|int(a.answer[at+7])<<8
	if verdict > plugins.Fail || a.answer[at+5] != 0 {
		return plugins.Result{}, malformed("verdict %d, padding %d", verdict, a.answer[at+5])
	}
	message, err := a.piece(at + 12)
	if err != nil {
		return plugins.Result{}, fmt.Errorf("message: %w", err)
	}
	emitted, err := a.piece(at + 20)
	if err != nil {
		return plugins.Result{}, fmt.Errorf("events: %w", err)
	}
	if verdict != plugins.OK {
		if events != 0 {
			return plugins.Result{}, malformed("%d events with the verdict %s", events, verdict)
		}
		return judge(verdict, time.Duration(a.u32(at+8))*time.Millisecond, printable.Text(message, int(a.Message))), nil
	}
	if err := emitted.checkEvents(events); err != nil {
		return plugins.Result{}, err
	}
	return emit(a.Limits, emitted, events), nil
}

// checkEvents checks that the answer consists of n events. Each is a length and that number of
// bytes, without padding.
func (a answer) checkEvents(n int) error {
	for k := range n {
		if len(a) < 4 || uint64(a.u32(0)) > uint64(len(a)-4) {
			return malformed("event %d is not within what the record refers to", k)
		}
		_, a = a.cut()
	}
	if len(a) != 0 {
		return malformed("%d bytes behind the last of %d events", len(a), n)
	}
	return nil
}

// cut returns the first event of a checked answer, and the rest.
func (a answer) cut() (envelope, rest answer) {
	end := 4 + a.u32(0)
	return a[4:end], a[end:]
}

// emit returns the result of a delta that is ok, with n checked events.
func emit(l *Limits, text answer, n int) plugins.Result {
	if n == 0 {
		return plugins.Result{}
	}
	if n > l.Events {
		return Reject(fmt.Errorf("%d events for one delta, at most %d (limits.events)", n, l.Events))
	}
	events := make([]plugins.Emit, n)
	for k := range events {
		var envelope answer
		envelope, text = text.cut()
		e, err := ParseEnvelope(l, string(envelope))
		if err != nil {
			return Reject(fmt.Errorf("event %d of the guest: %w", k, err))
		}
		events[k] = e
	}
	return plugins.Result{Events: events}
}

// Reject returns the result of a rejected delta.
func Reject(err error) plugins.Result {
	return plugins.Result{Verdict: plugins.Fail, Err: plugins.Reject(err)}
}

// ParseEnvelope parses {"type"?, "subject"?, "data"}. Its error never quotes the text.
func ParseEnvelope(l *Limits, text string) (e plugins.Emit, err error) {
	if err := rawjson.Check(text); err != nil {
		return e, err
	}
	envelope := rawjson.Trim(text)
	if envelope.Kind() != rawjson.Object {
		return e, errors.New("not a JSON object {type, subject, data}")
	}
	for key, value := range envelope.Fields() {
		switch key {
		case "type":
			e.Type, err = attribute(l, key, value)
		case "subject":
			e.Subject, err = attribute(l, key, value)
		case "data":
			e.Data = []byte(value)
		default:
			err = errors.New("it has a member that is not type, subject or data")
		}
		if err != nil {
			return e, err
		}
	}
	if e.Data == nil {
		return e, errors.New("it has no data")
	}
	return e, nil
}

// attribute parses a CloudEvents attribute: a string, not empty, without control characters.
func attribute(l *Limits, name string, value rawjson.Value) (string, error) {
	s := value.Str()
	switch {
	case value.Kind() != rawjson.String || s == "":
		return "", fmt.Errorf("%s is not a string, or empty: leave it out", name)
	case len(s) > int(l.Message):
		return "", fmt.Errorf("%s has %d bytes, at most %d (limits.message)", name, len(s), l.Message)
	case strings.ContainsFunc(s, unicode.IsControl):
		return "", fmt.Errorf("%s contains a control character", name)
	}
	return strings.Clone(s), nil
}

// judge returns the result of a delta without events.
func judge(v plugins.Verdict, after time.Duration, message string) plugins.Result {
	switch v {
	case plugins.OK, plugins.Drop:
		return plugins.Result{Verdict: v}
	case plugins.Retry:
		return plugins.Result{Verdict: v, Err: plugins.Postpone(reason(message, "the guest asks for another try"), after)}
	case plugins.Fail:
	}
	return plugins.Result{Verdict: plugins.Fail, Err: reason(message, "the guest failed it, without a message")}
}

func reason(message, otherwise string) error {
	if message == "" {
		message = otherwise
	}
	return errors.New(message)
}

// InitMessage reads the reason of a failed rtr_init: the address of a length and that number of
// bytes, or else a number.
func InitMessage(mem Memory, code uint32, l *Limits) string {
	if code%4 == 0 {
		if size, ok := mem.Read(code, 4); ok {
			if n := binary.LittleEndian.Uint32(size); n > 0 && int64(n) <= int64(l.Message) {
				if text, ok := mem.Read(code+4, n); ok {
					return printable.Text(text, int(l.Message))
				}
			}
		}
	}
	return fmt.Sprintf("it returned %d", code)
}

// The negative results of host functions. All other results are not negative.
const (
	StatusOK       = 0
	StatusNotFound = -1
	StatusDenied   = -2 // the function is not granted
	StatusQuota    = -3 // a limit is exceeded
	StatusInvalid  = -4 // an argument is out of bounds or invalid
	StatusTooLate  = -5 // the time of the call is over
)
