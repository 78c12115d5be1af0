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

	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// maxSaid is how much of what the API server says is repeated, in bytes.
const maxSaid = 400

// statusOf returns what the API server answered; nil: it did not.
func statusOf(err error) *metav1.Status {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	s := status.Status()
	return &s
}

// answered reports whether it is known that a write was not done.
func answered(err error) bool {
	if status := statusOf(err); status != nil {
		return status.Code < http.StatusInternalServerError
	}
	var dial *net.OpError
	return errors.As(err, &dial) && dial.Op == "dial"
}

// judge says what an error of the API server means for an operation: nil if its work is done all
// the same, an error made by [plugins.Reject] or [plugins.Postpone], or another one if the API
// server is unavailable.
func (s *sink) judge(ctx context.Context, op *operation, err error) error {
	status := statusOf(err)
	switch {
	case status == nil:
		return s.unavailable(ctx, err)
	case s.settled(ctx, op, status):
		s.log.DebugContext(ctx, "nothing is left to be written", slog.String("operation", op.String()), slog.String("reason", string(status.Reason)))
		return nil
	}
	said := fmt.Errorf("the API server answered %s", describe(op, status))
	switch code := int(status.Code); {
	case code == http.StatusConflict && op.verb != verbApply && !op.pinsVersion() && !strings.Contains(status.Message, "Precondition failed"):
		return plugins.Postpone(said, 0)
	case code == http.StatusTooManyRequests && op.verb == verbEvict && isBudget(status):
		return plugins.Postpone(said, retryAfter(status))
	case code >= http.StatusInternalServerError && op.verb == verbApply && isTyped(status):
		return plugins.Reject(said)
	case code == http.StatusUnauthorized: // is about the router, not about the event
		return plugins.RetryLater(said, 0)
	case code == http.StatusRequestTimeout, code == http.StatusTooEarly, code == http.StatusTooManyRequests, code >= http.StatusInternalServerError:
		return plugins.RetryLater(said, retryAfter(status))
	}
	return plugins.Reject(said)
}

// settled reports whether there is nothing left to do for an operation that the API server refused.
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

// isMissing reports whether it is the target that was not found, rather than its namespace or
// resource.
func (o *operation) isMissing(status *metav1.Status) bool {
	return status.Details != nil && status.Details.Name == o.target.name && (status.Details.Kind == o.target.resource || status.Details.Kind == o.target.kind)
}

// isAnother reports whether the target is not there any more, or another object has its name.
func (s *sink) isAnother(ctx context.Context, op *operation) bool {
	found, err := s.api.metadata(ctx, &op.target)
	if err != nil {
		return apierrors.IsNotFound(err)
	}
	return string(found.UID) != op.target.uid
}

// lostRace reports whether another writer came between the API server's reading and writing.
func (s *sink) lostRace(op *operation, err error) bool {
	status := statusOf(err)
	return status != nil && status.Reason == metav1.StatusReasonConflict && !isOwned(status) && (op.verb == verbMerge || op.verb == verbJSON) && !op.pinsVersion()
}

// pinsVersion reports whether a patch is meant for one resourceVersion only.
func (o *operation) pinsVersion() bool {
	var patch struct {
		Metadata struct {
			ResourceVersion *json.RawMessage `json:"resourceVersion"`
		} `json:"metadata"`
	}
	return o.verb == verbMerge && json.Unmarshal(o.body, &patch) == nil && patch.Metadata.ResourceVersion != nil
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

// isOwned reports whether another manager has the fields.
func isOwned(status *metav1.Status) bool { return has(status, metav1.CauseTypeFieldManagerConflict) }

// isBudget reports whether it is a disruption budget that does not let a pod go.
func isBudget(status *metav1.Status) bool {
	return has(status, "DisruptionBudget") || strings.Contains(status.Message, "disruption budget")
}

// isTyped reports whether an object to apply does not have the form of its kind, which the API
// server says with the code of its own failures.
func isTyped(status *metav1.Status) bool {
	return strings.HasPrefix(status.Message, "failed to create typed patch object") || strings.HasPrefix(status.Message, "failed to convert new object")
}

// maxRetryAfter bounds what an API server may ask for.
const maxRetryAfter = 24 * time.Hour

func retryAfter(status *metav1.Status) time.Duration {
	if status.Details == nil {
		return 0
	}
	return min(max(time.Duration(status.Details.RetryAfterSeconds)*time.Second, 0), maxRetryAfter)
}

// describe says what the API server answered without what is in objects.
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

// withoutValue leaves out of a message about a field what the field has.
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

// withoutQuotes leaves out of a message about the form of an object what is quoted of it, but for
// the names of fields.
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

// unavailable makes the error of a request that got no answer. What net/http says of an answer that
// is none quotes it, so the token of the request if that is echoed; why there is no token is said
// on this side.
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
