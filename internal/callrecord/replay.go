package callrecord

import (
	"context"
	"fmt"
	"hash/crc32"
	"unsafe"
)

// Checksum returns the checksum of a request.
func Checksum(request string) uint32 {
	return crc32.Checksum(unsafe.Slice(unsafe.StringData(request), len(request)), castagnoli)
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli) //nolint:gochecknoglobals // made once

// Replay gives the host the answers of a record. One guest uses it.
type Replay struct {
	Record *Record

	begun   int // calls
	started bool
	answers []Answer // those of the call that were not used
	left    string
}

// ReplayOf returns the Replay in the environment of a handler; nil: there is none.
func ReplayOf(env any) *Replay {
	r, _ := env.(*Replay)
	return r
}

// Begin begins the next call, and returns the clock before it.
func (p *Replay) Begin() (clock Clock) {
	p.started, p.answers = true, nil
	if p.begun < len(p.Record.Calls) {
		c := &p.Record.Calls[p.begun]
		clock, p.answers = c.Clock, c.Answers
	}
	p.begun++
	return clock
}

// Answer returns the next recorded answer to a request. Those to other requests are left out: the
// guest may have made them for another delta. Without one, [Replay.Left] says so.
func (p *Replay) Answer(function string, request uint32) (Answer, bool) {
	if !p.started {
		p.started, p.answers = true, p.Record.Start
	}
	for i, a := range p.answers {
		if a.Function == function && a.Request == request {
			p.answers = p.answers[i+1:]
			return a, true
		}
	}
	if p.left == "" {
		p.left = fmt.Sprintf("the guest calls %s in another way than recorded", function)
		if p.Record.Incomplete {
			p.left = fmt.Sprintf("the record ends before a call of %s, because the answers of the call exceed %d KiB", function, MaxSize>>10)
		}
	}
	return Answer{}, false
}

// Left describes the first request without a recorded answer. Empty: there was none.
func (p *Replay) Left() string { return p.left }

// Replayer is a handler that was opened to repeat a call.
type Replayer interface {
	// Replay repeats the call once.
	Replay(ctx context.Context) (*Outcome, error)
}

// Outcome is the result of a replay.
type Outcome struct {
	Verdict string `json:"verdict"`
	Error   string `json:"error,omitempty"`
	// Left says that the guest has not repeated the recorded call, and where. Empty: it has.
	Left      string     `json:"left,omitempty"`
	Fuel      int64      `json:"fuel"`
	FuelLimit int64      `json:"fuelLimit"`
	Place     []string   `json:"place,omitempty"` // the functions that a trap has ended, the innermost first
	Functions []Function `json:"functions"`       // with the most fuel first
	Settings  string     `json:"-"`               // as in a Record
	Module    string     `json:"-"`
}

// Function is the fuel of a function without that of the functions that it calls.
type Function struct {
	Name  string `json:"name"`
	Calls int64  `json:"calls"`
	Fuel  int64  `json:"fuel"`
}
