package check

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/deltarouter/deltarouter/pkg/informer"
	"github.com/deltarouter/deltarouter/pkg/plugins"
)

// unanswered describes why the API server did not answer a request, with the remedy.
func unanswered(client *informer.Client, err error) error {
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("the API server %s cannot be reached: %w; check the address, and cluster.kubeconfig and cluster.context",
			client.Host(), plugins.Transport(failed.Err))
	}
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return err
	}
	switch status.Status().Code {
	case http.StatusUnauthorized:
		return fmt.Errorf("the API server %s refuses the credentials (401): renew the token or the certificate of the kubeconfig", client.Host())
	case http.StatusForbidden:
		return fmt.Errorf("the API server %s refuses the request (403): %w", client.Host(), err)
	default:
		return fmt.Errorf("the API server %s answers: %w", client.Host(), err)
	}
}
