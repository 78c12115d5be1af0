package engine

import (
	"log/slog"
	"time"

	"github.com/deltarouter/deltarouter/internal/access"
	"github.com/deltarouter/deltarouter/internal/api"
	"github.com/deltarouter/deltarouter/internal/tlsfiles"
	"github.com/deltarouter/deltarouter/pkg/config"
	"github.com/deltarouter/deltarouter/pkg/informer"
)

// Secure adds TLS and access control to the API, as configured. client is needed for access control
// only.
func Secure(cfg *api.ControlConfig, listen config.Listen, client *informer.Client, log *slog.Logger) error {
	review := access.Config{Now: time.Now}
	if client != nil {
		review.URL, review.Client = client.Host(), client.HTTP()
	}
	if !listen.TLS.Cert.IsZero() {
		files, err := tlsfiles.NewServer(listen, log)
		if err != nil {
			return err
		}
		cfg.TLS, review.ClientCAs = files.Config(), files.ClientCAs
	}
	if listen.Access != "" {
		cfg.Access = access.New(review).Identify
	}
	return nil
}
