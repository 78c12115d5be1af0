package oci

// VerifyBundle is verifyBundle.
var VerifyBundle = verifyBundle
