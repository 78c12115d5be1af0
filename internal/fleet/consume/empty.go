package consume

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/nats-io/nats.go"
)

// codeNoMessage is the error of a request for a message that does not exist.
const codeNoMessage = 10037

// Empty reports whether a stream has no message whose subject matches a filter.
func Empty(ctx context.Context, conn *nats.Conn, stream, filter string) (bool, error) {
	sequence, err := first(ctx, conn, stream, filter)
	return sequence == 0 && err == nil, err
}

// first returns the sequence of the first message of a stream whose subject matches a filter; 0:
// there is none. The leader of the stream answers: its replicas may be behind.
func first(ctx context.Context, conn *nats.Conn, stream, filter string) (sequence uint64, err error) {
	request, err := json.Marshal(map[string]any{"seq": 1, "next_by_subj": filter})
	if err != nil {
		return 0, err
	}
	// nats.go would ask a replica, because the stream allows that.
	answer, err := conn.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if err != nil {
		return 0, fmt.Errorf("look for messages of %s in stream %s: %w", filter, stream, err)
	}
	var got struct {
		Message struct {
			Sequence uint64 `json:"seq"`
		} `json:"message"`
		Error *struct {
			Code        int    `json:"err_code"`
			Description string `json:"description"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &got); err != nil {
		return 0, fmt.Errorf("look for messages of %s in stream %s: %w", filter, stream, err)
	}
	if got.Error == nil {
		return got.Message.Sequence, nil
	}
	if got.Error.Code != codeNoMessage {
		return 0, fmt.Errorf("look for messages of %s in stream %s: %s", filter, stream, got.Error.Description)
	}
	return 0, nil
}
