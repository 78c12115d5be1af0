package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/deltarouter/deltarouter/internal/outdated"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// maxSaid is the maximum length of a quoted message of the API server, in bytes.
const maxSaid = 400

// statusOf returns the status of the API server's response; nil: there was no response.
func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	s := status.Status()
	return &s
}

// answered reports whether the API server has answered that it did not execute a write.
func answered(err error) bool {
	if status := statusOf(err); status != nil {
		return status.Code < http.StatusInternalServerError
	}
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// judge classifies an error of the API server:
//
//   - nil: the work of the operation is already done;
//   - an error of [plugins.Reject] or [plugins.Postpone];
//   - any other error: the API server is unavailable.
func (s *sink) judge(ctx context.Context, op *operation, err error) error {
	status := statusOf(err)
	switch {
	case status == nil:
		return s.unavailable(ctx, err)
	case s.settled(ctx, op, status):
		s.log.DebugContext(ctx, "the operation is already done", slog.String("operation", op.String()), slog.String("reason", string(status.Reason)))
		return nil
	}
	said := plugins.Categorize(fmt.Errorf("the API server answered %s", describe(op, status)),
		fmt.Sprintf("the API server answered %d %s", status.Code, http.StatusText(int(status.Code))))
	switch code := int(status.Code); {
	case op.isOutdated(status):
		return plugins.Postpone(outdated.Mark(said), 0)
	case code == http.StatusConflict && !isOwned(status) && !op.pinsVersion() && !strings.Contains(status.Message, "Precondition failed"):
		return plugins.Postpone(said, 0)
	case code == http.StatusTooManyRequests && op.verb == verbEvict && isBudget(status):
		return plugins.Postpone(said, retryAfter(status))
	case code >= http.StatusInternalServerError && op.verb == verbApply && isTyped(status):
		return plugins.Reject(said)
	case code == http.StatusUnauthorized: // concerns the router, not the event
		return plugins.RetryLater(said, 0)
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return plugins.RetryLater(said, retryAfter(status))
	}
	return plugins.Reject(said)
}

// settled reports whether a refused operation has nothing left to do.
func (s *sink) settled(ctx context.Context, op *operation, status *metav1.Status) bool {
	switch status.Code {
	case http.StatusNotFound:
		return op.isMissing(status) && (op.removes() || op.ignore)
	case http.StatusConflict:
		switch {
		case status.Reason == metav1.StatusReasonAlreadyExists:
			return (op.verb == verbCreate || op.verb == verbEvent) && !strings.Contains(status.Message, "being deleted")
		case op.removes():
			return op.target.uid != "" && s.isAnother(ctx, op)
		}
		return op.ignore && op.target.uid != "" && !isOwned(status) && s.isAnother(ctx, op)
	case http.StatusUnprocessableEntity:
		return op.ignore && op.target.uid != "" && s.isAnother(ctx, op)
	}
	return false
}

// isMissing reports whether the target was not found, and not its namespace or resource.
func (o *operation) isMissing(status *metav1.Status) bool {
	return status.Details != nil && status.Details.Name == o.target.name && (status.Details.Kind == o.target.resource || status.Details.Kind == o.target.kind)
}

// isAnother reports whether the target has been deleted, or another object has its name now.
func (s *sink) isAnother(ctx context.Context, op *operation) bool {
	found, err := s.api.metadata(ctx, &op.target)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return string(found.UID) != op.target.uid
}

// lostRace reports whether the object changed between the read and the write of the API server.
func (s *sink) lostRace(op *operation, err error) bool {
	status := statusOf(err)
	return status != nil && status.Reason == metav1.StatusReasonConflict && !isOwned(status) && (op.verb == verbMerge || op.verb == verbJSON) && !op.pinsVersion()
}

// isOutdated reports whether the API server refused a write because it requires a state that the
// object has no more: a resourceVersion, or a test of a JSON patch. Of a failed patch the API
// server does not say which operation failed, but then it names no field.
func (o *operation) isOutdated(status *metav1.Status) bool {
	switch status.Code {
	case http.StatusConflict:
		return !isOwned(status) && o.pinsVersion() && !strings.Contains(status.Message, "Precondition failed")
	case http.StatusUnprocessableEntity:
		return o.tests && (status.Details == nil || len(status.Details.Causes) == 0)
	}
	return false
}

// pinsVersion reports whether a merge or an apply requires a certain resourceVersion.
func (o *operation) pinsVersion() bool {
	var patch struct {
		Metadata struct {
			ResourceVersion *json.RawMessage `json:"resourceVersion"`
		} `json:"metadata"`
	}
	return (o.verb == verbMerge || o.verb == verbApply) && json.Unmarshal(o.body, &patch) == nil && patch.Metadata.ResourceVersion != nil
}

func has(status *metav1.Status, cause metav1.CauseType) bool {
	if status.Details == nil {
		return false
	}
	for _, c := range status.Details.Causes {
		if c.Type == cause {
			return true
		}
	}
	return false
}

// isOwned reports whether another field manager owns the fields.
func isOwned(status *metav1.Status) bool { return has(status, metav1.CauseTypeFieldManagerConflict) }

// isBudget reports whether a disruption budget prevents an eviction.
func isBudget(status *metav1.Status) bool {
	return has(status, "DisruptionBudget") || strings.Contains(status.Message, "disruption budget")
}

// isTyped reports whether an applied object does not match the schema of its kind, for which the
// API server returns status 500.
func isTyped(status *metav1.Status) bool {
	return strings.HasPrefix(status.Message, "failed to create typed patch object") || strings.HasPrefix(status.Message, "failed to convert new object")
}

// maxRetryAfter is the maximum delay that an API server may request.
const maxRetryAfter = 24 * time.Hour

func retryAfter(status *metav1.Status) time.Duration {
	if status.Details == nil {
		return 0
	}
	return min(max(time.Duration(status.Details.RetryAfterSeconds)*time.Second, 0), maxRetryAfter)
}

// describe returns the message of the API server without the content of objects.
func describe(op *operation, status *metav1.Status) string {
	said := strconv.Itoa(int(status.Code)) + " " + string(status.Reason)
	switch {
	case isOwned(status):
		var fields []string
		for _, c := range status.Details.Causes {
			fields = append(fields, c.Field+" ("+c.Message+")")
		}
		return said + ": " + clipSaid(strings.Join(fields, ", ")) + "; force takes them over"
	case status.Reason == metav1.StatusReasonInvalid && status.Details != nil && len(status.Details.Causes) > 0:
		var fields []string
		for _, c := range status.Details.Causes {
			field := c.Field
			if m := withoutQuotes(withoutValue(c.Message)); m != "" && !op.target.isSecret() {
				field += ": " + m
			}
			fields = append(fields, field)
		}
		return said + ": " + clipSaid(strings.Join(fields, ", "))
	case op.target.isSecret() || status.Message == "":
		return said
	case status.Code == http.StatusBadRequest || isTyped(status):
		return said + ": " + clipSaid(withoutQuotes(status.Message))
	}
	return said + ": " + clipSaid(strings.ReplaceAll(status.Message, "\n", " "))
}

// withoutValue removes the value of a field from a message about the field.
func withoutValue(message string) string {
	what, rest, ok := strings.Cut(message, " value: ")
	if !ok || what == "Required" {
		return message
	}
	if quoted, err := strconv.QuotedPrefix(rest); err == nil {
		return what + " value" + rest[len(quoted):]
	}
	if i := strings.LastIndex(rest, ": "); i >= 0 {
		return what + " value" + rest[i:]
	}
	return what + " value"
}

// withoutQuotes removes quoted content from a message about the form of an object, except the names
// of fields.
func withoutQuotes(message string) string {
	message, _, _ = strings.Cut(message, ", got ")
	var b strings.Builder
	for i, part := range strings.Split(strings.ReplaceAll(message, "\n", " "), `"`) {
		switch {
		case i%2 == 0:
			b.WriteString(part)
		case strings.HasSuffix(b.String(), "field "):
			b.WriteString(strconv.Quote(part))
		default:
			b.WriteString("…")
		}
	}
	return b.String()
}

func clipSaid(s string) string {
	if len(s) > maxSaid {
		return strings.ToValidUTF8(s[:maxSaid], "") + "…"
	}
	return s
}

// unavailable returns the error of a request without a response. The error of net/http quotes an
// invalid response, which may repeat the token of the request, so its text is replaced. A missing
// token is a local error, which is shown.
func (s *sink) unavailable(ctx context.Context, err error) error {
	of, ok := errors.AsType[*url.Error](err)
	switch {
	case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer within %v", s.api.timeout)
	case !ok:
		return err
	case strings.HasPrefix(of.Err.Error(), "getting credentials"):
		return of.Err
	}
	return plugins.Transport(of.Err)
}
