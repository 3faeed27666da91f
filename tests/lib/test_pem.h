/* A certificate of "localhost" and 127.0.0.1 that signs itself, with its private key: for tests
 * alone. Made by
 *
 *     openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 36500
 *         -subj /CN=localhost -addext "subjectAltName=DNS:localhost,IP:127.0.0.1" */
#ifndef TESTS_LIB_TEST_PEM_H
#define TESTS_LIB_TEST_PEM_H

static const char test_pem[] = "-----BEGIN CERTIFICATE-----\n"
                               "MIIBmzCCAUGgAwIBAgIUetMB7bIzUdkWXV+CXpm5+PWzFZMwCgYIKoZIzj0EAwIw\n"
                               "FDESMBAGA1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyODA0MDQzNFoYDzIxMjYxMTA0\n"
                               "MDQwNDM0WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjO\n"
                               "PQMBBwNCAAQm+Yd3axrwXkKbQ6PVv4w+pfCB2kH4RHLKAirR026BAWYmV3mzqYv4\n"
                               "dPcgUOuWZP2keyNo+9BlZr176gjlj7iWo28wbTAdBgNVHQ4EFgQUYuP5eaVksXZJ\n"
                               "O8wBS5GZvcAcJGcwHwYDVR0jBBgwFoAUYuP5eaVksXZJO8wBS5GZvcAcJGcwDwYD\n"
                               "VR0TAQH/BAUwAwEB/zAaBgNVHREEEzARgglsb2NhbGhvc3SHBH8AAAEwCgYIKoZI\n"
                               "zj0EAwIDSAAwRQIhAMPa3wBpFIcDiy4hH4j/BNe8HdoRo+M2LsTxZxEJ+V9fAiAw\n"
                               "8TmFkFIwfunK6JSMDhefx/iV7xz8xgH8eRbs6NKsPg==\n"
                               "-----END CERTIFICATE-----\n"
                               "-----BEGIN PRIVATE KEY-----\n"
                               "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg05GUEjoOomve/BMJ\n"
                               "7Z7f4vCjBPLNdU3oSgOqylqH6RKhRANCAAQm+Yd3axrwXkKbQ6PVv4w+pfCB2kH4\n"
                               "RHLKAirR026BAWYmV3mzqYv4dPcgUOuWZP2keyNo+9BlZr176gjlj7iW\n"
                               "-----END PRIVATE KEY-----\n";

#endif
