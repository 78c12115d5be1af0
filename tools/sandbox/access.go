package main

import (
	"bytes"
	"crypto/rand"
	"encoding/csv"
	"errors"
	"io/fs"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// The users of a sandbox. Only RBAC protects the objects from them.
const (
	adminUser = "admin" // has all rights
	// the sandbox itself; separate from admin, so that the audit log can exclude it
	sandboxUser = "sandbox"
	limitedUser = "limited" // has no right beyond discovery until a test binds a role to it
	adminGroup  = "system:masters"
	contextName = "sandbox"
)

// users lists them with their group.
var users = []struct{ name, group string }{
	{adminUser, adminGroup},
	{sandboxUser, adminGroup},
	{limitedUser, ""},
}

// loadTokens reads the tokens of an earlier start, or makes new ones.
func (d *dir) loadTokens() error {
	f, err := os.Open(d.file(tokensFile))
	if errors.Is(err, fs.ErrNotExist) {
		return d.makeTokens()
	}
	if err != nil {
		return err
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.FieldsPerRecord = -1
	records, err := r.ReadAll()
	if err != nil {
		return err
	}
	d.tokens = make(map[string]string, len(records))
	for _, rec := range records {
		if len(rec) < 3 {
			return errors.New(tokensFile + ": want token,user,uid[,group]")
		}
		d.tokens[rec[1]] = rec[0]
	}
	return nil
}

// makeTokens writes the file that kube-apiserver reads: token,user,uid,group.
func (d *dir) makeTokens() error {
	d.tokens = make(map[string]string, len(users))
	var file bytes.Buffer
	w := csv.NewWriter(&file)
	for _, u := range users {
		d.tokens[u.name] = rand.Text()
		rec := []string{d.tokens[u.name], u.name, u.name}
		if u.group != "" {
			rec = append(rec, u.group)
		}
		if err := w.Write(rec); err != nil {
			return err
		}
	}
	w.Flush()
	return replaceFile(d.file(tokensFile), file.Bytes(), 0o600)
}

// writeKubeconfig writes a kubeconfig that needs no other file.
func (d *dir) writeKubeconfig(name, user string) error {
	ca, err := os.ReadFile(d.key(caCert))
	if err != nil {
		return err
	}
	cfg := clientcmdapi.NewConfig()
	cfg.Clusters[contextName] = &clientcmdapi.Cluster{Server: d.serverURL(), CertificateAuthorityData: ca}
	cfg.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: d.tokens[user]}
	cfg.Contexts[contextName] = &clientcmdapi.Context{Cluster: contextName, AuthInfo: user, Namespace: "default"}
	cfg.CurrentContext = contextName
	data, err := clientcmd.Write(*cfg)
	if err != nil {
		return err
	}
	return replaceFile(d.file(name), data, 0o600)
}

// restConfig is for the sandbox's own clients.
func (d *dir) restConfig(user string) *rest.Config {
	return &rest.Config{
		Host:            d.serverURL(),
		BearerToken:     d.tokens[user],
		TLSClientConfig: rest.TLSClientConfig{CAFile: d.key(caCert)},
		UserAgent:       "sandbox",
		QPS:             -1, // there are no other clients to protect
	}
}
