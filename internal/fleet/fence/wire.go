package fence

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"

	"github.com/deltarouter/deltarouter/internal/fleet"
)

// Headers of JetStream's atomic batches, which nats.go does not have yet.
const (
	batchHeader    = "Nats-Batch-Id"
	sequenceHeader = "Nats-Batch-Sequence"
	commitHeader   = "Nats-Batch-Commit"
	lastHeader     = "Nats-Expected-Last-Subject-Sequence"
	subjectHeader  = "Nats-Expected-Last-Subject-Sequence-Subject"
)

// Numbers of JetStream's errors.
const (
	messageNotFound = 10037
	tooLargeMessage = 10054 // larger than the stream's limit for a message
	tooLargeHeader  = 10097
	wrongSequence   = 10071
	tooLargeBatch   = 10199
	knownID         = 10201 // one of the messages has a Nats-Msg-Id that the stream knows
)

// errMissing says that no server answers requests about the stream.
var errMissing = errors.New("no server of NATS has the stream, or it has no leader at the moment")

// errNotConnected says that nothing can be sent.
var errNotConnected = errors.New("there is no connection to NATS")

// errConflict says that the lead record is not the expected one.
var errConflict = errors.New("the lead record was replaced")

// A Record is the lead record of a stream.
type Record struct {
	Holder string `json:"holder"`         // Config.Holder
	ID     string `json:"id"`             // of the publisher, unique
	Term   uint64 `json:"term"`           // larger with each Open
	Batch  uint64 `json:"batch"`          // number of the batch that the record ends; 0: of Open
	Note   []byte `json:"note,omitempty"` // of the caller
}

func (p *Publisher) record(term, batch uint64, note []byte) Record {
	return Record{Holder: p.config.Holder, ID: p.id, Term: term, Batch: batch, Note: note}
}

// message returns the lead record as a message that replaces the one before it.
func (p *Publisher) message(r Record) (*nats.Msg, error) {
	body, err := json.Marshal(r)
	header := nats.Header{nats.MsgRollup: {nats.MsgRollupSubject}}
	if mac := p.config.Keys.Sign(fleet.PurposeLead, p.config.Lead, "", body); mac != "" {
		header[fleet.MACHeader] = []string{mac}
	}
	return &nats.Msg{Subject: p.config.Lead, Data: body, Header: header}, err
}

// Parse returns the lead record of a message with a subject. The error is that of
// [fleet.Keys.Verify], or says that the record is damaged.
func Parse(keys *fleet.Keys, subject string, header nats.Header, data []byte) (r Record, err error) {
	if err := keys.Verify(header.Get(fleet.MACHeader), fleet.PurposeLead, subject, "", data); err != nil {
		return r, fmt.Errorf("the lead record: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return r, fmt.Errorf("the lead record is damaged: %w", err)
	}
	return r, nil
}

// send makes one attempt to store messages and the record behind them as one batch. Each attempt
// has an identity of its own: the server may still keep a part of an attempt that failed.
func (p *Publisher) send(ctx context.Context, messages []*nats.Msg, record Record) (uint64, error) {
	end, err := p.message(record)
	if err != nil {
		return 0, err
	}
	id := nuid.Next()
	for i, m := range messages {
		if m.Header == nil {
			m.Header = nats.Header{}
		}
		m.Header[batchHeader] = []string{id}
		m.Header[sequenceHeader] = []string{strconv.Itoa(i + 1)}
		if i == 0 {
			p.expect(m.Header, p.last)
		}
		if err := p.config.Conn.PublishMsg(m); err != nil {
			return 0, refusedHere(err)
		}
	}
	end.Header[batchHeader] = []string{id}
	end.Header[sequenceHeader] = []string{strconv.Itoa(len(messages) + 1)}
	end.Header[commitHeader] = []string{"1"}
	return p.request(ctx, end)
}

// one makes one attempt to store the record alone, expecting the sequence of the one before it.
func (p *Publisher) one(ctx context.Context, record Record, last uint64) (uint64, error) {
	m, err := p.message(record)
	if err != nil {
		return 0, err
	}
	p.expect(m.Header, last)
	return p.request(ctx, m)
}

func (p *Publisher) expect(h nats.Header, last uint64) {
	h[lastHeader] = []string{strconv.FormatUint(last, 10)}
	h[subjectHeader] = []string{p.config.Lead}
}

// apiError is the part of an answer of JetStream that tells of a failure.
type apiError struct {
	Code int    `json:"err_code"`
	Text string `json:"description"`
}

// request sends the last message of a batch and waits for the answer of the stream.
func (p *Publisher) request(ctx context.Context, m *nats.Msg) (uint64, error) {
	var answer struct {
		Seq   uint64    `json:"seq"`
		Error *apiError `json:"error"`
	}
	if err := p.ask(ctx, m, &answer); err != nil {
		return 0, err
	}
	if e := answer.Error; e != nil {
		return 0, e.class()
	}
	if answer.Seq == 0 {
		return 0, errors.New("the answer of the stream has no sequence")
	}
	return answer.Seq, nil
}

// class returns the error to act upon: all others than these are temporary.
func (e *apiError) class() error {
	switch e.Code {
	case wrongSequence:
		return errConflict
	case tooLargeMessage, tooLargeHeader, tooLargeBatch, knownID:
		return &RefusedError{Code: e.Code, Text: e.Text}
	}
	return fmt.Errorf("NATS answers: %s", fleet.Explain(e.Code, e.Text))
}

// lead reads the lead record from the leader of the stream; sequence 0: there is none. With keys,
// one that is not of the fleet is the zero Record.
func (p *Publisher) lead(ctx context.Context) (r Record, seq uint64, err error) {
	var answer struct {
		Message struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
			Data   []byte `json:"data"`
		} `json:"message"`
		Error *apiError `json:"error"`
	}
	query, err := json.Marshal(map[string]string{"last_by_subj": p.config.Lead})
	if err != nil {
		return r, 0, err
	}
	err = p.ask(ctx, &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + p.config.Stream, Data: query}, &answer)
	if err != nil {
		return r, 0, err
	}
	if answer.Error != nil {
		if answer.Error.Code == messageNotFound {
			return r, 0, nil
		}
		return r, 0, answer.Error.class()
	}
	var header nats.Header
	if len(answer.Message.Header) > 0 {
		if header, err = nats.DecodeHeadersMsg(answer.Message.Header); err != nil {
			header = nil // then there is no signature
		}
	}
	r, err = Parse(p.config.Keys, p.config.Lead, header, answer.Message.Data)
	// Its place is known nevertheless, so that the next record can replace it.
	if err != nil && p.config.Keys != nil {
		p.config.Refused(err)
		return Record{}, answer.Message.Seq, nil
	}
	if err != nil {
		return r, 0, err
	}
	return r, answer.Message.Seq, nil
}

// ask sends a request and decodes its answer, within the time limit of an attempt.
func (p *Publisher) ask(ctx context.Context, m *nats.Msg, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, p.config.attempt)
	defer cancel()
	reply, err := p.config.Conn.RequestMsgWithContext(ctx, m)
	if errors.Is(err, nats.ErrNoResponders) {
		return errMissing
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return errors.New("NATS does not answer")
	}
	if err != nil {
		return refusedHere(err)
	}
	if err := json.Unmarshal(reply.Data, answer); err != nil {
		return fmt.Errorf("the answer of NATS is no JSON: %w", err)
	}
	return nil
}

// refusedHere separates the errors of the client that a repetition does not change.
func refusedHere(err error) error {
	if errors.Is(err, nats.ErrReconnectBufExceeded) { // the router buffers nothing
		return errNotConnected
	}
	for _, e := range []error{nats.ErrMaxPayload, nats.ErrBadSubject, nats.ErrInvalidMsg, nats.ErrHeadersNotSupported, nats.ErrConnectionClosed} {
		if errors.Is(err, e) {
			return &RefusedError{Text: e.Error()}
		}
	}
	return err
}
